// A stable sort of rows by number on CUDA: which sources go to row 0, in their order, then to row 1, and so
// on. Radix sort from the lowest digit, of 8 bits (Knuth, The Art of Computer Programming 3, 5.2.5): in
// each pass a launch counts the digits of every tile, one makes the counts places, one moves keys and values.
// Time and memory grow with the number of keys alone; no atomics, so the same bits each time.
#pragma once
#include "kernels/common/launch.cuh"
#include "kernels/scatter/sorted.h"

namespace aicf::cuda {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kSortThreads = 256;  // also the number of digits: a thread has one
constexpr int kSortWarps = kSortThreads / kWarp;
constexpr int kRounds = static_cast<int>(kSortTile / kSortThreads);  // of 32 keys, for each warp
static_assert(kSortThreads == kDigits);

// The key of a source: its row, or `rows` where it goes nowhere.
struct FromIndex {
  const int64_t* index;
  int64_t rows;
  __device__ uint32_t key(int64_t i) const {
    const int64_t row = index[i];
    return static_cast<uint32_t>(row < 0 || row >= rows ? rows : row);
  }
  __device__ uint32_t value(int64_t i) const { return static_cast<uint32_t>(i); }
};

// What the pass before has sorted.
struct FromPass {
  const uint32_t *keys, *values;
  __device__ uint32_t key(int64_t i) const { return keys[i]; }
  __device__ uint32_t value(int64_t i) const { return values[i]; }
};

// How many keys of the warp's part of this tile have each digit, in their order: place(round) is how many in
// front have the same. `counts` is of the warp, zero at first.
template <class Source, class Place>
__device__ __forceinline__ void count_warp(const Source& from, int64_t n, int shift, uint32_t* counts,
                                           Place&& place) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t begin = blockIdx.x * kSortTile + warp * (kRounds * kWarp);
  for (int round = 0; round < kRounds; ++round) {
    const int64_t i = begin + round * kWarp + lane;
    const uint32_t digit = i < n ? from.key(i) >> shift & (kDigits - 1) : kDigits;
    const unsigned same = __match_any_sync(kAll, digit);
    const int in_front = __popc(same & ((1u << lane) - 1));
    uint32_t seen = 0;
    if (digit < kDigits) seen = counts[digit];
    __syncwarp();
    if (digit < kDigits && in_front == 0) counts[digit] = seen + __popc(same);
    __syncwarp();
    place(round, i, digit, seen + in_front);
  }
}

// counts[digit][tile]
template <class Source>
__global__ void __launch_bounds__(kSortThreads)
    count_kernel(Source from, int64_t n, int shift, uint32_t* counts, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  __shared__ uint32_t own[kSortWarps][kDigits];
  for (int w = 0; w < kSortWarps; ++w) own[w][threadIdx.x] = 0;
  __syncthreads();
  count_warp(from, n, shift, own[threadIdx.x / kWarp], [](int, int64_t, uint32_t, uint32_t) {});
  __syncthreads();
  uint32_t sum = 0;
  for (int w = 0; w < kSortWarps; ++w) sum += own[w][threadIdx.x];
  counts[threadIdx.x * static_cast<int64_t>(gridDim.x) + blockIdx.x] = sum;
}

// The sum of `x` of the threads in front in this block of kSortThreads, and of all in *total.
__device__ __forceinline__ uint32_t sum_in_front(uint32_t x, uint32_t* total) {
  __shared__ uint32_t of_warp[kSortWarps];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  uint32_t sum = x;
  for (int step = 1; step < kWarp; step *= 2) {
    const uint32_t other = __shfl_up_sync(kAll, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == kWarp - 1) of_warp[warp] = sum;
  __syncthreads();
  uint32_t before = 0, all = 0;
  for (int w = 0; w < kSortWarps; ++w) {
    if (w < warp) before += of_warp[w];
    all += of_warp[w];
  }
  __syncthreads();
  *total = all;
  return before + sum - x;
}

// A block a digit: counts[digit][tile] becomes the sum of those in front, and totals[digit] that of all.
static __global__ void __launch_bounds__(kSortThreads)
    sum_counts_kernel(uint32_t* counts, int64_t tiles, uint32_t* totals, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  uint32_t* own = counts + blockIdx.x * tiles;
  uint32_t before = 0;
  for (int64_t first = 0; first < tiles; first += kSortThreads) {
    const int64_t tile = first + threadIdx.x;
    uint32_t all = 0;
    const uint32_t sum = sum_in_front(tile < tiles ? own[tile] : 0, &all);
    if (tile < tiles) own[tile] = before + sum;
    before += all;
  }
  if (threadIdx.x == 0) totals[blockIdx.x] = before;
}

template <class Source>
__global__ void __launch_bounds__(kSortThreads)
    move_kernel(Source from, int64_t n, int shift, const uint32_t* counts, const uint32_t* totals,
                uint32_t* keys, uint32_t* values, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  __shared__ uint32_t own[kSortWarps][kDigits];
  for (int w = 0; w < kSortWarps; ++w) own[w][threadIdx.x] = 0;
  __syncthreads();
  uint32_t in_front[kRounds];  // in the warp's part, with the same digit
  count_warp(from, n, shift, own[threadIdx.x / kWarp],
             [&](int round, int64_t, uint32_t, uint32_t place) { in_front[round] = place; });
  uint32_t all = 0;
  uint32_t before = sum_in_front(totals[threadIdx.x], &all);  // has a barrier: `own` is complete behind it
  before += counts[threadIdx.x * static_cast<int64_t>(gridDim.x) + blockIdx.x];
  for (int w = 0; w < kSortWarps; ++w) {
    const uint32_t count = own[w][threadIdx.x];
    own[w][threadIdx.x] = before;
    before += count;
  }
  __syncthreads();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t begin = blockIdx.x * kSortTile + warp * (kRounds * kWarp);
  for (int round = 0; round < kRounds; ++round) {
    const int64_t i = begin + round * kWarp + lane;
    if (i >= n) continue;
    const uint32_t key = from.key(i);
    const uint32_t to = own[warp][key >> shift & (kDigits - 1)] + in_front[round];
    keys[to] = key;
    values[to] = from.value(i);
  }
}

template <class Source>
Status sort_pass(const Source& from, int64_t n, int pass, const SortMemory& memory,
                 const LaunchContext& ctx) {
  const auto tiles = static_cast<unsigned>(sort_tiles(n));
  const int shift = pass * kDigitBits;
  AICF_TRY(launch(ctx, tiles, kSortThreads, 0, count_kernel<Source>, from, n, shift, memory.counts,
                  ctx.predicate));
  AICF_TRY(launch(ctx, kDigits, kSortThreads, 0, sum_counts_kernel, memory.counts,
                  static_cast<int64_t>(tiles), memory.totals, ctx.predicate));
  return launch(ctx, tiles, kSortThreads, 0, move_kernel<Source>, from, n, shift, memory.counts,
                memory.totals, memory.keys[pass % 2], memory.values[pass % 2], ctx.predicate);
}

// The rows of `n` sources in ascending order in *keys, and the number of each source in *values.
inline Status sort_sources(const int64_t* index, int64_t n, int64_t rows, const SortMemory& memory,
                           const LaunchContext& ctx, const uint32_t** keys, const uint32_t** values) {
  const int passes = sort_passes(rows);
  AICF_TRY(sort_pass(FromIndex{index, rows}, n, 0, memory, ctx));
  for (int pass = 1; pass < passes; ++pass) {
    const int last = (pass - 1) % 2;
    AICF_TRY(sort_pass(FromPass{memory.keys[last], memory.values[last]}, n, pass, memory, ctx));
  }
  *keys = memory.keys[(passes - 1) % 2];
  *values = memory.values[(passes - 1) % 2];
  return Status::ok();
}

}  // namespace aicf::cuda
