// scatter_add and scatter_rows of many sources on CUDA: they are sorted by row, so that time grows with their
// number and not with its square; then each element of a row is reduced by one thread in the order of the
// sources. A row with many has its sources in several chunks of the sorted ones: their results are reduced in
// their order, in one more launch. No atomics, the same bits each time.
#include "kernels/common/launch.cuh"
#include "kernels/common/numeric.cuh"
#include "kernels/scatter/reductions.h"
#include "kernels/scatter/sorted.h"
#include "kernels/sort/block.cuh"
#include "kernels/sort/radix.cuh"

namespace aicf {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr int kAhead = 8;  // loads that are under way at once

struct FromIndex {
  using Key = uint32_t;
  SortRows s;
  __device__ uint32_t key(int64_t, int64_t i) const { return static_cast<uint32_t>(s.key(i)); }
  __device__ uint32_t value(int64_t, int64_t i) const {
    return static_cast<uint32_t>(max(s.source(i), int64_t{0}));
  }
};

// The i32 of sort_rows: keys that ascend, and places, which a text may have changed.
struct Sorted {
  const int32_t *keys, *places;
  int64_t key_step, place_step, n, columns, src_rows, src_step;
  uint32_t rows;

  __device__ uint32_t key(int64_t p) const { return static_cast<uint32_t>(keys[p * key_step]); }
  __device__ uint32_t place(int64_t p) const {
    const auto row = static_cast<uint32_t>(places[p * place_step]);
    return min(row, static_cast<uint32_t>(src_rows - 1));
  }

  __device__ bool has(int64_t p, uint32_t row) const { return p < n && key(p) == row; }
  __device__ bool begins(int64_t p) const { return p == 0 || key(p - 1) != key(p); }
  __device__ int64_t end_of_chunk(int64_t p) const { return min(n, (p / kChunk + 1) * kChunk); }
};

// A chunk in shared memory: its sources, and where each of its rows begins, with the end of the last row.
struct Chunk {
  uint32_t keys[kChunk], places[kChunk], of_warp[kChunk / kWarp];
  int begins[kChunk + 1];
};

// How many rows the chunk has that begins at `first`. Called by the block.
__device__ __forceinline__ int load_chunk(Chunk& chunk, const Sorted& s, int64_t first) {
  const int i = static_cast<int>(threadIdx.x);
  const uint32_t key = first + i < s.n ? s.key(first + i) : s.rows;
  const bool is_there = key < s.rows && s.src_rows > 0;
  chunk.keys[i] = is_there ? key : s.rows;
  if (is_there) chunk.places[i] = s.place(first + i);
  __syncthreads();
  const bool begins = is_there && (i == 0 || chunk.keys[i - 1] != chunk.keys[i]);
  const int place = static_cast<int>(sum_in_front(begins, chunk.of_warp));
  if (begins) chunk.begins[place] = i;
  const int size = __syncthreads_count(is_there), rows = __syncthreads_count(begins);
  if (i == 0) chunk.begins[rows] = size;
  __syncthreads();
  return rows;
}

// y holds x already. A block reduces the rows of one chunk, W columns a thread and `lanes` threads a row;
// the blocks of a chunk share its columns.
template <class T, int W, class Reduction>
__global__ void __launch_bounds__(kChunk)
    reduce_chunks_kernel(T* y, const T* src, bool include_self, const __grid_constant__ Sorted s, int lanes,
                         unsigned parts, Compute<T>* partials, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  __shared__ Chunk chunk;
  const int64_t number = blockIdx.x / parts, first = number * kChunk;
  const int64_t column = (static_cast<int64_t>(blockIdx.x % parts) * lanes + threadIdx.x % lanes) * W;
  const int rows = load_chunk(chunk, s, first);
  if (column >= s.columns) return;
  for (int at = static_cast<int>(threadIdx.x) / lanes; at < rows; at += kChunk / lanes) {
    const int begin = chunk.begins[at], end = chunk.begins[at + 1];
    const uint32_t row = chunk.keys[begin];
    const bool begins = begin != 0 || s.begins(first);
    const bool goes_on = end == kChunk && s.has(first + kChunk, row);
    T* const to = y + row * s.columns + column;
    Compute<T> sum[W];
    Vec<T, W> was{};
    if (begins && include_self) was = *reinterpret_cast<const Vec<T, W>*>(to);
#pragma unroll
    for (int w = 0; w < W; ++w) sum[w] = begins && include_self ? widen(was.at[w]) : Reduction::kNone;
    for (int p = begin; p < end; p += kAhead) {
      Vec<T, W> terms[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j)
        if (p + j < end)
          terms[j] = *reinterpret_cast<const Vec<T, W>*>(
              src + static_cast<int64_t>(chunk.places[p + j]) * s.src_step + column);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (p + j >= end) continue;
#pragma unroll
        for (int w = 0; w < W; ++w) sum[w] = Reduction::of(sum[w], widen(terms[j].at[w]));
      }
    }
    if (begins && !goes_on) {
      Vec<T, W> given;
#pragma unroll
      for (int w = 0; w < W; ++w) given.at[w] = narrow<T>(sum[w]);
      *reinterpret_cast<Vec<T, W>*>(to) = given;
    } else {
      Compute<T>* const part = partials + (number * 2 + begins) * s.columns + column;
#pragma unroll
      for (int w = 0; w < W; ++w) part[w] = sum[w];
    }
  }
}

// Columns of a thread: as many as one access moves, if every row begins at a multiple of them.
template <class T>
int columns_at_once(const Scatter& s) {
  const auto step = static_cast<uint64_t>(s.columns | s.src_step) * sizeof(T);
  return (step | reinterpret_cast<uint64_t>(s.y) | reinterpret_cast<uint64_t>(s.src)) % 16 == 0 ? kWidest<T>
                                                                                                : 1;
}

// Threads of a row: for each W columns one, if few chunks leave no processor idle; neighbours have at least
// 128 bytes of a row.
int lanes_of(int64_t columns, int width, int64_t chunks) {
  constexpr int kFewest = 8;
  constexpr int64_t kBlocks = 4 * 132;
  int lanes = 1;
  while (lanes < kChunk && lanes * width < columns) lanes *= 2;
  while (lanes > kFewest && chunks * ceil_div<int64_t>(columns, lanes * width) < kBlocks) lanes /= 2;
  return lanes;
}

template <class T, class Reduction>
Status reduce_chunks(const Scatter& s, const Sorted& sorted, Compute<T>* partials, const LaunchContext& ctx) {
  const int width = columns_at_once<T>(s);
  const int64_t chunks = sum_chunks(s.sources);
  const int lanes = lanes_of(s.columns, width, chunks);
  const auto parts = static_cast<unsigned>(ceil_div<int64_t>(s.columns, lanes * width));
  auto* const kernel =
      width == 1 ? reduce_chunks_kernel<T, 1, Reduction> : reduce_chunks_kernel<T, kWidest<T>, Reduction>;
  return launch(ctx, static_cast<unsigned>(chunks) * parts, kChunk, 0, kernel, static_cast<T*>(s.y),
                static_cast<const T*>(s.src), s.include_self, sorted, lanes, parts, partials, ctx.predicate);
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
    const uint32_t row = s.key(end - 1);
    if (row >= s.rows || !s.has(end, row) || (s.key(first) == row && !s.begins(first))) continue;
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

Status sort(const SortRows& s, void* workspace, const LaunchContext& ctx) {
  const FromIndex from{s};
  const ToPass<uint32_t> to{reinterpret_cast<uint32_t*>(s.keys), reinterpret_cast<uint32_t*>(s.places),
                            s.sources};
  const int bits = bits_of_rows(s.rows);
  if (s.sources <= 1024) return sort_in_blocks<256, 4>(from, to, 1, s.sources, bits, ctx);
  if (s.sources <= 4096) return sort_in_blocks<512, 8>(from, to, 1, s.sources, bits, ctx);
  static_assert(kBlockSort == 1024 * 8);
  if (s.sources <= kBlockSort) return sort_in_blocks<1024, 8>(from, to, 1, s.sources, bits, ctx);
  WorkspaceParts parts(workspace);
  const SortMemory<uint32_t> memory(parts, 1, s.sources, bits);
  return digit_bits(bits) == kDigitBits ? sort_by_digits<kDigitBits>(from, to, memory, ctx)
                                        : sort_by_digits<kDigitBits + 1>(from, to, memory, ctx);
}

}  // namespace

Status sort_rows_cuda(const SortRows& s, const LaunchContext& ctx) {
  return s.sources == 0 ? Status::ok() : sort(s, ctx.workspace, ctx);
}

Status scatter_sorted(const Scatter& s, const LaunchContext& ctx) {
  if (s.rows * s.columns == 0) return Status::ok();
  return with_float_type(s.dtype, [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    T* y = static_cast<T*>(s.y);
    AICF_TRY(copied(s, ctx));
    if (s.sources == 0) return Status::ok();
    const SortedMemory memory(ctx.workspace, s);
    Sorted sorted{static_cast<const int32_t*>(s.index.data),
                  static_cast<const int32_t*>(s.at.data),
                  s.index.step,
                  s.at.step,
                  s.sources,
                  s.columns,
                  s.src_rows,
                  s.src_step,
                  static_cast<uint32_t>(s.rows)};
    if (!s.is_sorted()) {
      AICF_TRY(sort({s.rows, s.src_rows, s.sources, s.index, s.at, s.has_at, memory.keys, memory.places},
                    memory.sort, ctx));
      sorted.keys = memory.keys;
      sorted.places = memory.places;
      sorted.key_step = sorted.place_step = 1;
    }
    auto* partials = static_cast<Compute<T>*>(memory.partials);
    return with_reduction<Compute<T>>(s.kind, [&](auto reduction) -> Status {
      using Reduction = typename decltype(reduction)::type;
      AICF_TRY((reduce_chunks<T, Reduction>(s, sorted, partials, ctx)));
      return launch(ctx, grid_stride_blocks(sum_chunks(s.sources) * s.columns, kThreads), kThreads, 0,
                    join_chunks_kernel<T, Reduction>, y, sorted, partials, ctx.predicate);
    });
  });
}

}  // namespace aicf
