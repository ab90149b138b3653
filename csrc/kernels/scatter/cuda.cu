// scatter_add and scatter_rows on CUDA: the warp of the first source of a row reduces all of that row's
// sources, in their order;
// nobody else writes the row, so no atomics are needed. To find them it reads the index, which lies in the
// cache: for few sources (sorted.cu has the others).
#include "kernels/scatter/copy.cuh"
#include "kernels/scatter/reductions.h"

namespace aicf {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr int kPerLane = 4;                     // columns of a lane
constexpr int64_t kColumns = kWarp * kPerLane;  // of a warp
constexpr unsigned kAll = 0xffffffffu;

constexpr int kAhead = 8;                  // numbers of the index that a lane asks for at once
constexpr int64_t kSpan = kAhead * kWarp;  // of a warp

// Which of the kSpan sources from `first` on, and below `end`, go to `row`: a bit each, 32 a word. Called by
// a whole warp.
__device__ __forceinline__ unsigned sources_of(int64_t row, const int64_t* index, int64_t first, int64_t end,
                                               unsigned (&found)[kAhead]) {
  int64_t to[kAhead];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const int64_t i = first + k * kWarp + threadIdx.x % kWarp;
    to[k] = i < end ? index[i] : -1;
  }
  unsigned any = 0;
#pragma unroll
  for (int k = 0; k < kAhead; ++k) any |= found[k] = __ballot_sync(kAll, to[k] == row);
  return any;
}

__device__ __forceinline__ bool is_first(int64_t source, int64_t row, const int64_t* index) {
  unsigned found[kAhead];
  for (int64_t first = 0; first < source; first += kSpan)
    if (sources_of(row, index, first, source, found)) return false;
  return true;
}

// y holds x already. A warp takes a source and kColumns columns.
template <class T, class Reduction>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(T* y, const int64_t* index, const T* src, bool include_self, int64_t rows, int64_t columns,
                   int64_t sources, int64_t strips, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * (kThreads / kWarp);
  int64_t item = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  for (; item < sources * strips; item += warps) {  // the same for all lanes of a warp
    const int64_t source = item / strips, column = item % strips * kColumns + threadIdx.x % kWarp;
    const int64_t row = index[source];
    if (row < 0 || row >= rows || !is_first(source, row, index)) continue;
    Compute<T> found[kPerLane];
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int64_t at = column + j * kWarp;
      found[j] = include_self && at < columns ? widen(y[row * columns + at]) : Reduction::kNone;
    }
    for (int64_t first = source; first < sources; first += kSpan) {
      unsigned places[kAhead];
      if (!sources_of(row, index, first, sources, places)) continue;
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        for (unsigned left = places[k]; left; left &= left - 1) {
          const T* from = src + (first + k * kWarp + __ffs(static_cast<int>(left)) - 1) * columns;
#pragma unroll
          for (int j = 0; j < kPerLane; ++j) {
            const int64_t at = column + j * kWarp;
            if (at < columns) found[j] = Reduction::of(found[j], widen(from[at]));
          }
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int64_t at = column + j * kWarp;
      if (at < columns) y[row * columns + at] = narrow<T>(found[j]);
    }
  }
}

}  // namespace

Status scatter_cuda(const Scatter& s, const LaunchContext& ctx) {
  const int64_t n = s.rows * s.columns;
  if (n == 0) return Status::ok();
  return with_float_type(s.dtype, [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    T* y = static_cast<T*>(s.y);
    const T* src = static_cast<const T*>(s.src);
    AICF_TRY(copy(y, static_cast<const T*>(s.x), n, ctx));
    if (s.sources == 0) return Status::ok();
    const int64_t strips = ceil_div(s.columns, kColumns);
    const unsigned blocks = grid_stride_blocks(s.sources * strips * kWarp, kThreads);
    return with_reduction<Compute<T>>(s.kind, [&](auto reduction) {
      using Reduction = typename decltype(reduction)::type;
      return launch(ctx, blocks, kThreads, 0, scatter_kernel<T, Reduction>, y, s.index, src, s.include_self,
                    s.rows, s.columns, s.sources, strips, ctx.predicate);
    });
  });
}

}  // namespace aicf
