// scatter_add and scatter_rows of few sources on CUDA, of one matrix or of many in one launch. A block has
// some rows of one matrix: it reads the whole index, which lies in the cache, lists the sources of its rows
// in their order, copies the rows of x, and then the warp of the first source of a row reduces all of that
// row's sources. Nobody else writes the row, so no atomics are needed. A large x is copied by a launch
// before: blocks that wait for their index would keep the memory idle. sorted.cu has those of many sources.
#include <algorithm>

#include "kernels/common/launch.cuh"
#include "kernels/common/numeric.cuh"
#include "kernels/copy/launch.h"
#include "kernels/scatter/reductions.h"

namespace aicf {
namespace {

using namespace cuda;

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kPerLane = kFewSources / kThreads;  // sources that a thread looks at
constexpr int kColumns = 2;                       // of a lane at once
constexpr int kAhead = 4;                         // rows of src, and sources of a warp, that are read at once
constexpr unsigned kAll = 0xffffffffu;

struct Matrix {
  const void* x;
  void* y;
  Places index;
  const void* src;
  int64_t rows, columns, sources, src_step;
  int64_t first_block, rows_per_block;  // of this launch
};

// 96 bytes each; a kernel's arguments hold 32764 bytes, of which those that are there take time.
constexpr int kSomeMatrices = 32, kMostMatrices = 340;

template <int kMost>
struct Matrices {
  int count;
  Matrix at[kMost];
};

// A source of the block: its row of the block, then its number.
__device__ __forceinline__ uint32_t entry_of(int row, int source) {
  return static_cast<uint32_t>(row) << 16 | static_cast<uint32_t>(source);
}
__device__ __forceinline__ uint32_t row_of(uint32_t entry) { return entry >> 16; }
__device__ __forceinline__ uint32_t source_of(uint32_t entry) { return entry & 0xffffu; }

// The rows of the block, `rows` from `begin` on, of the sources that this thread looks at; -1 for other rows.
// A warp looks at sources that follow each other.
struct OwnSources {
  int first, row[kPerLane];

  __device__ __forceinline__ OwnSources(const Matrix& m, int64_t begin, int64_t rows) {
    const int groups =
        static_cast<int>((m.sources + kThreads - 1) / kThreads);  // of kWarp sources, of a warp
    first = static_cast<int>(threadIdx.x / kWarp * groups * kWarp + threadIdx.x % kWarp);
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int source = first + j * kWarp;
      int64_t at = -1;
      if (j < groups && source < m.sources) at = m.index[source] - begin;
      row[j] = at >= 0 && at < rows ? static_cast<int>(at) : -1;
    }
  }
};

// Writes the sources of the block in their order, and returns how many there are.
__device__ __forceinline__ int list_sources(const OwnSources& own, uint32_t (&list)[kFewSources],
                                            int (&counts)[kWarps]) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  int count = 0;
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) count += __popc(__ballot_sync(kAll, own.row[j] >= 0));
  if (lane == 0) counts[warp] = count;
  __syncthreads();
  int at = 0, all = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) at += counts[w];
    all += counts[w];
  }
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const unsigned found = __ballot_sync(kAll, own.row[j] >= 0);
    if (own.row[j] >= 0)
      list[at + __popc(found & ((1u << lane) - 1))] = entry_of(own.row[j], own.first + j * kWarp);
    at += __popc(found);
  }
  __syncthreads();
  return all;
}

// Whether no entry in front of `place` has its row. Called by a whole warp.
__device__ __forceinline__ bool is_first(const uint32_t* list, int place, uint32_t row) {
  for (int base = 0; base < place; base += kWarp) {
    const int i = base + static_cast<int>(threadIdx.x) % kWarp;
    if (__any_sync(kAll, i < place && row_of(list[i]) == row)) return false;
  }
  return true;
}

// Reduces with the rows of src that the entries from `place` on have for `row`, into the columns
// column + j * kWarp of `found`.
template <class T, class Reduction>
__device__ __forceinline__ void reduce_entries(const Matrix& m, const uint32_t* list, int place, int count,
                                               uint32_t row, int64_t column, Compute<T> (&found)[kColumns]) {
  const T* src = static_cast<const T*>(m.src);
  for (int base = place; base < count; base += kWarp) {
    const int i = base + static_cast<int>(threadIdx.x) % kWarp;
    const uint32_t entry = i < count ? list[i] : 0xffffffffu;
    unsigned left = __ballot_sync(kAll, i < count && row_of(entry) == row);
    while (left) {
      T terms[kAhead][kColumns] = {};
      int some = 0;
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (!left) continue;  // the same for all lanes
        const int from = __ffs(static_cast<int>(left)) - 1;
        left &= left - 1;
        ++some;
        const T* const source = src + source_of(__shfl_sync(kAll, entry, from)) * m.src_step;
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
          if (column + j * kWarp < m.columns) terms[k][j] = source[column + j * kWarp];
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (k >= some) continue;
#pragma unroll
        for (int j = 0; j < kColumns; ++j) found[j] = Reduction::of(found[j], widen(terms[k][j]));
      }
    }
  }
}

// y = x in the rows of a block, without gaps.
template <class T>
__device__ __forceinline__ void copy_rows(T* y, const T* x, int64_t n) {
  constexpr int kWide = 16 / sizeof(T);
  const bool aligned = (reinterpret_cast<uintptr_t>(y) | reinterpret_cast<uintptr_t>(x)) % 16 == 0;
  const int64_t vectors = aligned ? n / kWide : 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < vectors; i += kThreads)
    reinterpret_cast<uint4*>(y)[i] = reinterpret_cast<const uint4*>(x)[i];
  for (int64_t i = vectors * kWide + threadIdx.x; i < n; i += kThreads) y[i] = x[i];
}

template <class T, class Reduction, int kMost>
__global__ void __launch_bounds__(kThreads) scatter_kernel(const __grid_constant__ Matrices<kMost> matrices,
                                                           bool include_self, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  __shared__ uint32_t list[kFewSources];
  __shared__ int counts[kWarps];
  int number = 0;
  for (int end = matrices.count; end - number > 1;) {
    const int middle = (number + end) / 2;
    if (matrices.at[middle].first_block <= blockIdx.x)
      number = middle;
    else
      end = middle;
  }
  const Matrix& m = matrices.at[number];
  const int64_t begin = (blockIdx.x - m.first_block) * m.rows_per_block;
  const int64_t rows = min(m.rows_per_block, m.rows - begin);
  T* const y = static_cast<T*>(m.y) + begin * m.columns;
  const T* const x = static_cast<const T*>(m.x) + begin * m.columns;
  const OwnSources own(m, begin, rows);
  if (x != y) copy_rows(y, x, rows * m.columns);
  const int count = list_sources(own, list, counts);  // after which the rows are there

  // A warp takes kAhead sources at once, and reads what is known of each before it needs any.
  const T* const src = static_cast<const T*>(m.src);
  const int lane = threadIdx.x % kWarp;
  for (int base = threadIdx.x / kWarp; base < count; base += kWarps * kAhead) {
    uint32_t entries[kAhead];
    bool first[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int place = base + k * kWarps;
      entries[k] = list[min(place, count - 1)];
      first[k] = place < count && is_first(list, place, row_of(entries[k]));
    }
    for (int64_t column = lane; column < m.columns + lane; column += kColumns * kWarp) {
      T was[kAhead][kColumns] = {}, term[kAhead][kColumns] = {};
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (!first[k]) continue;
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          const int64_t at = column + j * kWarp;
          if (at >= m.columns) continue;
          if (include_self) was[k][j] = y[row_of(entries[k]) * m.columns + at];
          term[k][j] = src[source_of(entries[k]) * m.src_step + at];
        }
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (!first[k]) continue;
        const uint32_t row = row_of(entries[k]);
        Compute<T> found[kColumns];
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
          found[j] = Reduction::of(include_self ? widen(was[k][j]) : Reduction::kNone, widen(term[k][j]));
        reduce_entries<T, Reduction>(m, list, base + k * kWarps + 1, count, row, column, found);
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
          if (column + j * kWarp < m.columns) y[row * m.columns + column + j * kWarp] = narrow<T>(found[j]);
      }
    }
  }
}

constexpr int64_t kLargeCopy = 4 << 20;  // bytes of x that are worth a launch

// Rows of a block: enough blocks for a large chip, else as many bytes to write as make reading the index
// small, or any number where none are copied.
int64_t rows_per_block(int64_t all_rows, int64_t columns, size_t bytes, bool copies) {
  constexpr int64_t kBlocks = 2 * 132, kBytes = 64 << 10, kMostRows = 1024;
  const int64_t row = std::max<int64_t>(1, columns * static_cast<int64_t>(bytes));
  const int64_t large = copies ? kBytes / row : kMostRows;
  return std::max<int64_t>(1,
                           std::min({ceil_div(all_rows, kBlocks), std::max<int64_t>(large, 8), kMostRows}));
}

template <class T, class Reduction, int kMost>
Status scatter(std::vector<Scatter> scatters, const LaunchContext& ctx) {
  int64_t all_rows = 0;
  for (Scatter& s : scatters) {
    all_rows += s.rows;
    if (s.rows * s.columns * static_cast<int64_t>(sizeof(T)) < kLargeCopy) continue;
    AICF_TRY(copied(s, ctx));
    s.x = s.y;
  }
  for (size_t first = 0; first < scatters.size(); first += kMost) {
    Matrices<kMost> matrices;
    matrices.count = 0;
    int64_t blocks = 0;
    for (size_t i = first; i < std::min(scatters.size(), first + kMost); ++i) {
      const Scatter& s = scatters[i];
      if (s.rows * s.columns == 0) continue;
      const int64_t rows = rows_per_block(all_rows, s.columns, sizeof(T), s.x != s.y);
      matrices.at[matrices.count++] = {s.x,       s.y,       s.index,    s.src,  s.rows,
                                       s.columns, s.sources, s.src_step, blocks, rows};
      blocks += ceil_div(s.rows, rows);
    }
    if (blocks > 0)
      AICF_TRY(launch(ctx, static_cast<unsigned>(blocks), kThreads, 0, scatter_kernel<T, Reduction, kMost>,
                      matrices, scatters[0].include_self, ctx.predicate));
  }
  return Status::ok();
}

}  // namespace

Status copied(const Scatter& s, const LaunchContext& ctx) {
  if (s.x == s.y) return Status::ok();
  Move move{s.dtype, s.dtype, s.x, s.y, s.rows * s.columns, {}};
  move.shape.append(move.count, {1, 1});
  return move_cuda(move, ctx);
}

Status scatter_cuda(const std::vector<Scatter>& scatters, const LaunchContext& ctx) {
  return with_float_type(scatters[0].dtype, [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    using Sum = SumOf<Compute<T>>;
    if (scatters.size() > kSomeMatrices) return scatter<T, Sum, kMostMatrices>(scatters, ctx);
    if (scatters.size() > 1) return scatter<T, Sum, kSomeMatrices>(scatters, ctx);
    return with_reduction<Compute<T>>(scatters[0].kind, [&](auto reduction) {
      return scatter<T, typename decltype(reduction)::type, 1>(scatters, ctx);
    });
  });
}

}  // namespace aicf
