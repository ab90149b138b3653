// scatter_add and scatter_rows of many sources on CUDA: they are sorted by row, so that time grows with their
// number and not with its square; then each element of a row is reduced by one thread in the order of the
// sources. A row with many has its sources in several chunks of the sorted ones: their results are reduced in
// their order, in one more launch. No atomics, the same bits each time.
#include "kernels/scatter/copy.cuh"
#include "kernels/scatter/reductions.h"
#include "kernels/scatter/sorted.h"
#include "kernels/sort/radix.cuh"

namespace aicf {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr int kAhead = 8;  // loads that are under way at once

// The key of a source: its row, or `rows` where it goes nowhere.
struct FromIndex {
  using Key = uint32_t;
  const int64_t* index;
  int64_t step, rows;
  __device__ uint32_t key(int64_t, int64_t i) const {
    const int64_t row = index[i * step];
    return static_cast<uint32_t>(row < 0 || row >= rows ? rows : row);
  }
  __device__ uint32_t value(int64_t, int64_t i) const { return static_cast<uint32_t>(i); }
};

struct Sorted {
  const uint32_t *keys, *values;
  int64_t n, columns, src_step;
  uint32_t rows;

  __device__ bool has(int64_t p, uint32_t row) const { return p < n && keys[p] == row; }
  __device__ bool begins(int64_t p) const { return p == 0 || keys[p - 1] != keys[p]; }
  __device__ int64_t end_of_chunk(int64_t p) const { return min(n, (p / kChunk + 1) * kChunk); }
};

// y holds x already. The thread of the first source of a row, or of a chunk, reduces those of the row up to
// the end of the chunk.
template <class T, class Reduction>
__global__ void __launch_bounds__(kThreads)
    reduce_chunks_kernel(T* y, const T* src, bool include_self, Sorted s, Compute<T>* partials,
                         const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (; item < s.n * s.columns; item += step) {
    const int64_t first = item / s.columns, column = item % s.columns;
    const uint32_t row = s.keys[first];
    const bool begins = s.begins(first);
    if (row >= s.rows || (!begins && first % kChunk != 0)) continue;
    T* const to = y + row * s.columns + column;
    Compute<T> sum = begins && include_self ? widen(*to) : Reduction::kNone;
    const int64_t end = s.end_of_chunk(first);
    int64_t p = first;
    for (int found = kAhead; found == kAhead; p += found) {
      T terms[kAhead] = {};
      found = 0;
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (p + j >= end || s.keys[p + j] != row) continue;
        terms[j] = src[static_cast<int64_t>(s.values[p + j]) * s.src_step + column];
        ++found;
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j)
        if (j < found) sum = Reduction::of(sum, widen(terms[j]));
    }
    if (begins && !(p == end && s.has(end, row)))
      *to = narrow<T>(sum);
    else
      partials[(first / kChunk * 2 + begins) * s.columns + column] = sum;
  }
}

// Of a row that begins in a chunk and goes on behind it: the results of all its chunks.
template <class T, class Reduction>
__global__ void __launch_bounds__(kThreads)
    join_chunks_kernel(T* y, Sorted s, const Compute<T>* partials, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads, chunks = (s.n + kChunk - 1) / kChunk;
  int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (; item < chunks * s.columns; item += step) {
    const int64_t chunk = item / s.columns, column = item % s.columns, first = chunk * kChunk;
    const int64_t end = s.end_of_chunk(first);
    const uint32_t row = s.keys[end - 1];
    if (row >= s.rows || !s.has(end, row) || (s.keys[first] == row && !s.begins(first))) continue;
    Compute<T> sum = partials[(chunk * 2 + 1) * s.columns + column];
    int64_t next = chunk + 1;
    for (int found = kAhead; found == kAhead; next += found) {
      Compute<T> terms[kAhead] = {};
      found = 0;
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (!s.has((next + j) * kChunk, row)) continue;
        terms[j] = partials[(next + j) * 2 * s.columns + column];
        ++found;
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j)
        if (j < found) sum = Reduction::of(sum, terms[j]);
    }
    y[row * s.columns + column] = narrow<T>(sum);
  }
}

}  // namespace

Status scatter_sorted(const Scatter& s, const LaunchContext& ctx) {
  if (s.rows * s.columns == 0) return Status::ok();
  return with_float_type(s.dtype, [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    T* y = static_cast<T*>(s.y);
    AICF_TRY(copy(y, static_cast<const T*>(s.x), s.rows * s.columns, ctx));
    if (s.sources == 0) return Status::ok();
    const SortedMemory memory(ctx.workspace, s.sources, s.columns, s.dtype);
    const Sorted sorted{memory.keys, memory.values, s.sources,
                        s.columns,   s.src_step,    static_cast<uint32_t>(s.rows)};
    AICF_TRY(sort_by_digits(FromIndex{s.index, s.index_step, s.rows},
                            ToPass<uint32_t>{memory.keys, memory.values, s.sources}, 1, s.sources,
                            bits_of_rows(s.rows), memory.sort, ctx));
    auto* partials = static_cast<Compute<T>*>(memory.partials);
    return with_reduction<Compute<T>>(s.kind, [&](auto reduction) -> Status {
      using Reduction = typename decltype(reduction)::type;
      AICF_TRY(launch(ctx, grid_stride_blocks(s.sources * s.columns, kThreads), kThreads, 0,
                      reduce_chunks_kernel<T, Reduction>, y, static_cast<const T*>(s.src), s.include_self,
                      sorted, partials, ctx.predicate));
      return launch(ctx, grid_stride_blocks(sum_chunks(s.sources) * s.columns, kThreads), kThreads, 0,
                    join_chunks_kernel<T, Reduction>, y, sorted, partials, ctx.predicate);
    });
  });
}

}  // namespace aicf
