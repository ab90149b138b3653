// A stable sort of long rows on CUDA: radix sort from the lowest digit, of 8 bits (Knuth, The Art of Computer
// Programming 3, 5.2.5). In each pass a launch counts the digits of every tile of every row, one makes the
// counts places, one moves keys and values. Time and memory grow with the number of keys alone; no atomics.
#pragma once
#include "kernels/sort/digits.cuh"

namespace aicf::cuda {

constexpr int kSortThreads = 256;  // also the number of digits: a thread has one
constexpr int kSortWarps = kSortThreads / kWarp;
constexpr int kRounds = static_cast<int>(kSortTile / kSortThreads);  // of 32 keys, for each warp
static_assert(kSortThreads == kDigits);

// What the pass before has sorted; the first pass has a source of its own.
template <class Number>
struct FromPass {
  using Key = Number;
  const Key* keys;
  const uint32_t* values;
  int64_t n;
  __device__ Key key(int64_t row, int64_t i) const { return keys[row * n + i]; }
  __device__ uint32_t value(int64_t row, int64_t i) const { return values[row * n + i]; }
};

template <class Key>
struct ToPass {
  Key* keys;
  uint32_t* values;
  int64_t n;
  __device__ void put_key(int64_t row, int64_t to, Key key) const { keys[row * n + to] = key; }
  __device__ void put_value(int64_t row, int64_t to, uint32_t value) const { values[row * n + to] = value; }
};

// A block is a tile of a row. A warp has kRounds times 32 of its keys, this is the first of the lane.
struct Tile {
  int64_t row, tile, first;
  __device__ explicit Tile(int64_t tiles)
      : row(blockIdx.x / tiles),
        tile(blockIdx.x % tiles),
        first(tile * kSortTile + threadIdx.x / kWarp * (kRounds * kWarp) + threadIdx.x % kWarp) {}
};

template <class Source>
__device__ __forceinline__ void load_keys(const Source& from, const Tile& at, int64_t n, int shift,
                                          typename Source::Key (&keys)[kRounds],
                                          uint32_t (&digits)[kRounds]) {
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int64_t i = at.first + round * kWarp;
    keys[round] = i < n ? from.key(at.row, i) : 0;
    digits[round] = i < n ? static_cast<uint32_t>(keys[round] >> shift) & (kDigits - 1) : kDigits;
  }
}

// counts[row][digit][tile]
template <class Source>
__global__ void __launch_bounds__(kSortThreads) count_kernel(Source from, int64_t n, int64_t tiles, int shift,
                                                             uint32_t* counts, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  __shared__ uint32_t own[kSortWarps][kDigits];
  for (int w = 0; w < kSortWarps; ++w) own[w][threadIdx.x] = 0;
  const Tile at(tiles);
  typename Source::Key keys[kRounds];
  uint32_t digits[kRounds], in_front[kRounds];
  load_keys(from, at, n, shift, keys, digits);
  __syncthreads();
  count_digits(digits, own[threadIdx.x / kWarp], in_front);
  __syncthreads();
  uint32_t sum = 0;
  for (int w = 0; w < kSortWarps; ++w) sum += own[w][threadIdx.x];
  counts[(at.row * kDigits + threadIdx.x) * tiles + at.tile] = sum;
}

// A warp a digit of a row: counts[row][digit][tile] becomes the sum of those in front, totals[row][digit]
// that of all.
static __global__ void __launch_bounds__(kSortThreads)
    sum_counts_kernel(uint32_t* counts, int64_t tiles, uint32_t* totals, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  const int lane = threadIdx.x % kWarp;
  const int64_t number = static_cast<int64_t>(blockIdx.x) * kSortWarps + threadIdx.x / kWarp;
  uint32_t* own = counts + number * tiles;
  uint32_t before = 0;
  for (int64_t first = 0; first < tiles; first += kWarp) {
    const int64_t tile = first + lane;
    const uint32_t count = tile < tiles ? own[tile] : 0;
    const uint32_t sum = sum_to_here(count);
    if (tile < tiles) own[tile] = before + sum - count;
    before += __shfl_sync(kAll, sum, kWarp - 1);
  }
  if (lane == 0) totals[number] = before;
}

// The tile is sorted in shared memory, so that neighbours go to neighbours.
template <class Source, class Sink>
__global__ void __launch_bounds__(kSortThreads)
    move_kernel(Source from, Sink sink, int64_t n, int64_t tiles, int shift, const uint32_t* counts,
                const uint32_t* totals, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  using Key = typename Source::Key;
  __shared__ uint32_t own[kSortWarps][kDigits];
  __shared__ uint32_t begins[kDigits];  // of a digit in the row, less its place in the tile
  __shared__ uint32_t of_warp[kSortWarps];
  __shared__ Key staged[kSortTile];
  const Tile at(tiles);
  const int warp = threadIdx.x / kWarp;
  for (int w = 0; w < kSortWarps; ++w) own[w][threadIdx.x] = 0;
  Key keys[kRounds];
  uint32_t digits[kRounds], places[kRounds];
  load_keys(from, at, n, shift, keys, digits);
  __syncthreads();
  count_digits(digits, own[warp], places);
  const uint32_t smaller = sum_in_front(totals[at.row * kDigits + threadIdx.x], of_warp);
  const uint32_t first = place_digits<kSortThreads>(own, of_warp);
  begins[threadIdx.x] = smaller + counts[(at.row * kDigits + threadIdx.x) * tiles + at.tile] - first;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    if (digits[round] == kDigits) continue;
    places[round] += own[warp][digits[round]];
    staged[places[round]] = keys[round];
  }
  __syncthreads();
  const int size = static_cast<int>(min(kSortTile, n - at.tile * kSortTile));
  uint32_t to[kRounds];
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int p = round * kSortThreads + static_cast<int>(threadIdx.x);
    if (p >= size) continue;
    const Key key = staged[p];
    to[round] = begins[static_cast<uint32_t>(key >> shift) & (kDigits - 1)] + p;
    sink.put_key(at.row, to[round], key);
  }
  __syncthreads();
  auto* values = reinterpret_cast<uint32_t*>(staged);
#pragma unroll
  for (int round = 0; round < kRounds; ++round)
    if (digits[round] != kDigits) values[places[round]] = from.value(at.row, at.first + round * kWarp);
  __syncthreads();
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int p = round * kSortThreads + static_cast<int>(threadIdx.x);
    if (p < size) sink.put_value(at.row, to[round], values[p]);
  }
}

template <class Source, class Sink>
Status sort_pass(const Source& from, const Sink& sink, int64_t rows, int64_t n, int pass, uint32_t* counts,
                 uint32_t* totals, const LaunchContext& ctx) {
  const int64_t tiles = sort_tiles(n);
  const auto blocks = static_cast<unsigned>(rows * tiles);
  const int shift = pass * kDigitBits;
  AICF_TRY(launch(ctx, blocks, kSortThreads, 0, count_kernel<Source>, from, n, tiles, shift, counts,
                  ctx.predicate));
  AICF_TRY(launch(ctx, static_cast<unsigned>(rows * kDigits / kSortWarps), kSortThreads, 0, sum_counts_kernel,
                  counts, tiles, totals, ctx.predicate));
  return launch(ctx, blocks, kSortThreads, 0, move_kernel<Source, Sink>, from, sink, n, tiles, shift, counts,
                totals, ctx.predicate);
}

// Sorts `rows` rows of n keys by their lowest `bits`: `first` says keys and values, `last` takes them.
template <class Source, class Sink>
Status sort_by_digits(const Source& first, const Sink& last, int64_t rows, int64_t n, int bits,
                      const SortMemory<typename Source::Key>& memory, const LaunchContext& ctx) {
  using Key = typename Source::Key;
  const int passes = sort_passes(bits);
  const auto step = [&](const auto& from, const auto& sink, int pass) {
    return sort_pass(from, sink, rows, n, pass, memory.counts, memory.totals, ctx);
  };
  const auto from = [&](int pass) {
    return FromPass<Key>{memory.keys[(pass - 1) % 2], memory.values[(pass - 1) % 2], n};
  };
  const auto to = [&](int pass) { return ToPass<Key>{memory.keys[pass % 2], memory.values[pass % 2], n}; };
  if (passes == 1) return step(first, last, 0);
  AICF_TRY(step(first, to(0), 0));
  for (int pass = 1; pass < passes - 1; ++pass) AICF_TRY(step(from(pass), to(pass), pass));
  return step(from(passes - 1), last, passes - 1);
}

}  // namespace aicf::cuda
