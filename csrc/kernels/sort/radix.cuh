// A stable sort of long rows on CUDA: radix sort from the lowest digit (Knuth, The Art of Computer
// Programming 3, 5.2.5) in which keys move once for each digit (Adinets and Merrill, "Onesweep: A Faster
// Least Significant Digit Radix Sort for GPUs", 2022). One launch counts the digits of all passes, then each
// pass is one launch.
//
// A block sorts a tile of a row. It needs the counts of the tiles in front, which may be under way: each tile
// makes its own counts known, looks back until it finds a tile that knows the counts of all in front, and
// then makes those known too (Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled
// Look-back", 2016). Tiles are taken by tickets, so a block waits only for blocks that have begun, whatever
// else runs on the chip. Which block has a tile changes nothing: atomics count, and the sums of integers are
// the same in each order.
#pragma once
#include "kernels/sort/digits.cuh"

namespace aicf::cuda {

constexpr int kSortThreads = 512;
constexpr int kSortWarps = kSortThreads / kWarp;

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

// The state of a digit of a tile. 0: nothing is known. Its count and 1; or, with this bit, the place in the
// row behind its elements, so the sum of its count and of all in front. A row has less than 2^31 elements.
constexpr uint32_t kIsPlace = 1u << 31;

// A word is all that one block tells another, so it needs no order with other accesses.
__device__ __forceinline__ uint32_t load_state(const uint32_t* from) {
  uint32_t state;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(state) : "l"(from) : "memory");
  return state;
}
__device__ __forceinline__ void store_state(uint32_t* to, uint32_t state) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(state) : "memory");
}

// The place of the first element of a tile with a digit, from the states of the `tiles` in front, the nearest
// kDigits words below `state`. Some are read at once: one after the other takes as long as each.
template <int kCount>
__device__ __forceinline__ uint32_t look_back(const uint32_t* state, uint32_t tiles) {
  constexpr uint32_t kAtOnce = 8;
  uint32_t sum = 0;
  for (uint32_t back = 1;; back += kAtOnce) {
    uint32_t states[kAtOnce];
#pragma unroll
    for (uint32_t j = 0; j < kAtOnce; ++j)
      states[j] = back + j <= tiles ? load_state(state - int64_t{back + j} * kCount) : kIsPlace;
#pragma unroll
    for (uint32_t j = 0; j < kAtOnce; ++j) {
      while (states[j] == 0) states[j] = load_state(state - int64_t{back + j} * kCount);
      if (states[j] & kIsPlace) return sum + (states[j] ^ kIsPlace);
      sum += states[j] - 1;
    }
  }
}

struct SortCounts {
  int64_t rows, n, tiles, parts;
  int passes;
  uint32_t *counts, *states, *tickets;  // of SortMemory
};

// A block counts the digits of all passes in a part of a row, and resets what the first pass needs.
template <int kBits, class Source>
__global__ void __launch_bounds__(kSortThreads)
    count_kernel(const __grid_constant__ Source from, const __grid_constant__ SortCounts s,
                 const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  using Key = typename Source::Key;
  constexpr int kCount = 1 << kBits, kAtOnce = 4;
  static_assert(kCount <= kSortThreads);
  __shared__ uint32_t own[(8 * sizeof(Key) + kBits - 1) / kBits][kCount];
  const int number = static_cast<int>(threadIdx.x);
  for (int pass = number / kCount; pass < s.passes; pass += kSortThreads / kCount)
    own[pass][number % kCount] = 0;
  auto* const states = reinterpret_cast<uint4*>(s.states);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kSortThreads,
                end_of_states = s.rows * s.tiles * kCount / 4;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kSortThreads + number; i < end_of_states; i += step)
    states[i] = uint4{0, 0, 0, 0};
  if (blockIdx.x == 0 && number < s.passes) s.tickets[number] = 0;
  __syncthreads();
  const int64_t row = blockIdx.x / s.parts, part = blockIdx.x % s.parts;
  const int64_t size = (s.n / s.parts / kWarp + 1) * kWarp;
  const int64_t end = min(s.n, (part + 1) * size);
  for (int64_t first = part * size + number; first < end; first += kAtOnce * kSortThreads) {
    Key keys[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (first + j * kSortThreads < end) keys[j] = from.key(row, first + j * kSortThreads);
    for (int pass = 0; pass < s.passes; ++pass) {
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
        if (first + j * kSortThreads < end) atomicAdd(&own[pass][digit_at(keys[j], pass * kBits, kBits)], 1u);
    }
  }
  __syncthreads();
  for (int pass = number / kCount; pass < s.passes; pass += kSortThreads / kCount)
    s.counts[((pass * s.rows + row) * s.parts + part) * kCount + number % kCount] =
        own[pass][number % kCount];
}

struct SortPass {
  int64_t n;
  uint32_t tiles, parts;
  int shift;
  const uint32_t* counts;    // counts[row][part][digit]
  uint32_t *states, *later;  // states[row][tile][digit]; `later` are those of the next pass, or null
  uint32_t* ticket;
};

// Adds the counts of all parts of a row to `sums`, which is shared and zero at first.
template <int kCount>
__device__ __forceinline__ void add_parts(const uint32_t* counts, uint32_t parts, uint32_t* sums) {
  constexpr uint32_t kWide = kCount / 4;  // numbers of 16 bytes
  const uint32_t at = threadIdx.x % kWide;
  uint4 sum{0, 0, 0, 0};
#pragma unroll 4
  for (uint32_t part = threadIdx.x / kWide; part < parts; part += kSortThreads / kWide) {
    const uint4 more = reinterpret_cast<const uint4*>(counts)[part * kWide + at];
    sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
  }
  atomicAdd(&sums[4 * at], sum.x);
  atomicAdd(&sums[4 * at + 1], sum.y);
  atomicAdd(&sums[4 * at + 2], sum.z);
  atomicAdd(&sums[4 * at + 3], sum.w);
}

// One after the other.
template <class Key, int kCount, int64_t kTile>
union TileMemory {
  uint32_t counts[kSortWarps][kCount];
  Key keys[kTile];
  uint32_t values[kTile];
};

// The tile is sorted in shared memory, so that neighbours go to neighbours.
template <int kBits, int64_t kTile, class Source, class Sink>
__global__ void __launch_bounds__(kSortThreads)
    sort_pass_kernel(const __grid_constant__ Source from, const __grid_constant__ Sink sink,
                     const __grid_constant__ SortPass s, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  using Key = typename Source::Key;
  constexpr int kCount = 1 << kBits;
  constexpr int kRounds = static_cast<int>(kTile / kSortThreads);  // of 32 keys, for each warp
  static_assert(kCount <= kSortThreads && kTile <= 1 << 16);       // a thread has one digit, or none
  __shared__ TileMemory<Key, kCount, kTile> memory;
  __shared__ uint32_t begins[kCount], first_in_tile[kCount], of_warp[kSortWarps], ticket;
  const int number = static_cast<int>(threadIdx.x), warp = number / kWarp;
  const bool has_digit = number < kCount;
  if (number == 0) ticket = atomicAdd(s.ticket, 1u);
  for (int w = number / kCount; w < kSortWarps; w += kSortThreads / kCount)
    memory.counts[w][number % kCount] = 0;
  if (has_digit) begins[number] = 0;
  __syncthreads();
  const int64_t row = ticket / s.tiles;
  const uint32_t tile = ticket % s.tiles;
  // Those past the end, of the last tile, come last in it: nobody reads its counts, and they are not written.
  const int64_t first = tile * kTile + warp * (kRounds * kWarp) + number % kWarp;
  Key keys[kRounds];
#pragma unroll
  for (int round = 0; round < kRounds; ++round)
    keys[round] =
        first + round * kWarp < s.n ? from.key(row, first + round * kWarp) : static_cast<Key>(~Key(0));
  if (tile == 0) add_parts<kCount>(s.counts + row * s.parts * kCount, s.parts, begins);
  const int64_t own_state = (row * s.tiles + tile) * kCount + number;
  if (has_digit && s.later) s.later[own_state] = 0;
  uint32_t digits[kRounds], places[kRounds], values[kRounds];
#pragma unroll
  for (int round = 0; round < kRounds; ++round) digits[round] = digit_at(keys[round], s.shift, kBits);
  count_digits<kBits>(digits, memory.counts[warp], places);
#pragma unroll
  for (int round = 0; round < kRounds; ++round) places[round] |= digits[round] << 16;  // both in one register
  __syncthreads();
  const uint32_t count = sum_of_warps<kSortWarps>(memory.counts);
  uint32_t begin = 0;  // the place of the first element of the tile with this thread's digit
  if (tile == 0) begin = sum_in_front(has_digit ? begins[number] : 0, of_warp);
  if (has_digit) store_state(s.states + own_state, tile == 0 ? kIsPlace | (begin + count) : count + 1);
  const uint32_t in_tile = sum_in_front(count, of_warp);
  if (has_digit) first_in_tile[number] = in_tile;
  __syncthreads();
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const uint32_t digit = places[round] >> 16;
    places[round] = (places[round] & 0xffff) + first_in_tile[digit] + memory.counts[warp][digit];
  }
  __syncthreads();
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    memory.keys[places[round]] = keys[round];
    values[round] = first + round * kWarp < s.n ? from.value(row, first + round * kWarp) : 0;
  }
  if (has_digit) {
    if (tile != 0) {
      begin = look_back<kCount>(s.states + own_state, tile);
      store_state(s.states + own_state, kIsPlace | (begin + count));
    }
    begins[number] = begin - in_tile;
  }
  __syncthreads();
  const int size = static_cast<int>(min(kTile, s.n - tile * kTile));
  uint32_t to[kRounds];
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int p = round * kSortThreads + number;
    const Key key = memory.keys[p];
    to[round] = begins[digit_at(key, s.shift, kBits)] + p;
    if (p < size) sink.put_key(row, to[round], key);
  }
  __syncthreads();
#pragma unroll
  for (int round = 0; round < kRounds; ++round) memory.values[places[round]] = values[round];
  __syncthreads();
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int p = round * kSortThreads + number;
    if (p < size) sink.put_value(row, to[round], memory.values[p]);
  }
}

template <int kBits, int64_t kTile, class Source, class Sink>
Status sort_tiles(const Source& first, const Sink& last, const SortMemory<typename Source::Key>& memory,
                  const LaunchContext& ctx) {
  using Key = typename Source::Key;
  const SortMemory<Key>& m = memory;
  const auto step = [&](const auto& from, const auto& sink, int pass) {
    using From = std::decay_t<decltype(from)>;
    using To = std::decay_t<decltype(sink)>;
    const SortPass s{m.n,
                     static_cast<uint32_t>(m.tiles),
                     static_cast<uint32_t>(m.parts),
                     pass * kBits,
                     m.counts + pass * m.rows * m.parts * (1 << kBits),
                     m.states[pass % 2],
                     pass + 1 < m.passes ? m.states[(pass + 1) % 2] : nullptr,
                     m.tickets + pass};
    return launch(ctx, static_cast<unsigned>(m.rows * m.tiles), kSortThreads, 0,
                  sort_pass_kernel<kBits, kTile, From, To>, from, sink, s, ctx.predicate);
  };
  const auto from = [&](int pass) {
    return FromPass<Key>{m.keys[(pass - 1) % 2], m.values[(pass - 1) % 2], m.n};
  };
  const auto to = [&](int pass) { return ToPass<Key>{m.keys[pass % 2], m.values[pass % 2], m.n}; };
  AICF_TRY(launch(
      ctx, static_cast<unsigned>(m.rows * m.parts), kSortThreads, 0, count_kernel<kBits, Source>, first,
      SortCounts{m.rows, m.n, m.tiles, m.parts, m.passes, m.counts, m.states[0], m.tickets}, ctx.predicate));
  if (m.passes == 1) return step(first, last, 0);
  AICF_TRY(step(first, to(0), 0));
  for (int pass = 1; pass < m.passes - 1; ++pass) AICF_TRY(step(from(pass), to(pass), pass));
  return step(from(m.passes - 1), last, m.passes - 1);
}

// Sorts rows by digits of kBits bits: `first` says keys and values, `last` takes them.
template <int kBits, class Source, class Sink>
Status sort_by_digits(const Source& first, const Sink& last, const SortMemory<typename Source::Key>& memory,
                      const LaunchContext& ctx) {
  return memory.tile == kSortTile ? sort_tiles<kBits, kSortTile>(first, last, memory, ctx)
                                  : sort_tiles<kBits, kSmallTile>(first, last, memory, ctx);
}

}  // namespace aicf::cuda
