// A stable sort of rows that a block holds on CUDA, in one launch: radix sort from the lowest digit, of 8
// bits (Knuth, The Art of Computer Programming 3, 5.2.5).
#pragma once
#include "kernels/sort/digits.cuh"

namespace aicf::cuda {

// Of kItems keys a thread at most.
template <class Key, int kThreads, int kItems>
struct BlockSort {
  static constexpr int kWarps = kThreads / kWarp;
  uint32_t counts[kWarps][kDigits], first[kDigits], of_warp[kWarps];
  Key keys[kThreads * kItems];
  uint16_t places[kThreads * kItems];
};

// A block has a row of n keys. `from` says keys and values, `sink` takes them in the order of the lowest
// `bits` of the keys.
template <int kThreads, int kItems, class Source, class Sink>
__global__ void __launch_bounds__(kThreads)
    block_sort_kernel(const __grid_constant__ Source from, const __grid_constant__ Sink sink, int n, int bits,
                      const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  static_assert(kThreads >= kDigits && kThreads * kItems <= kBlockSort);
  using Key = typename Source::Key;
  extern __shared__ __align__(16) unsigned char shared[];
  auto& memory = *reinterpret_cast<BlockSort<Key, kThreads, kItems>*>(shared);
  const int64_t row = blockIdx.x;
  const int warp = threadIdx.x / kWarp, first = warp * (kItems * kWarp) + threadIdx.x % kWarp;
  Key keys[kItems];
  uint16_t places[kItems];
#pragma unroll
  for (int item = 0; item < kItems; ++item) {  // those past the end stay there
    const int i = first + item * kWarp;
    keys[item] = i < n ? from.key(row, i) : static_cast<Key>(~Key(0));
    places[item] = static_cast<uint16_t>(i);
  }
  for (int shift = 0; shift < bits; shift += kDigitBits) {
    uint32_t digits[kItems], to[kItems];
    for (int w = threadIdx.x / kDigits; w < kThreads / kWarp; w += kThreads / kDigits)
      memory.counts[w][threadIdx.x % kDigits] = 0;
#pragma unroll
    for (int item = 0; item < kItems; ++item) digits[item] = digit_at(keys[item], shift, kDigitBits);
    __syncthreads();
    count_digits<kDigitBits>(digits, memory.counts[warp], to);
    __syncthreads();
    const uint32_t begin = sum_in_front(sum_of_warps<kThreads / kWarp>(memory.counts), memory.of_warp);
    if (threadIdx.x < kDigits) memory.first[threadIdx.x] = begin;
    __syncthreads();
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      to[item] += memory.first[digits[item]] + memory.counts[warp][digits[item]];
      memory.keys[to[item]] = keys[item];
      memory.places[to[item]] = places[item];
    }
    __syncthreads();
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      keys[item] = memory.keys[first + item * kWarp];
      places[item] = memory.places[first + item * kWarp];
    }
  }
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int to = first + item * kWarp;
    if (to >= n) continue;
    sink.put_key(row, to, keys[item]);
    sink.put_value(row, to, from.value(row, places[item]));
  }
}

// Sorts `rows` rows of n keys by their lowest `bits`.
template <int kThreads, int kItems, class Source, class Sink>
Status sort_in_blocks(const Source& from, const Sink& sink, int64_t rows, int64_t n, int bits,
                      const LaunchContext& ctx) {
  using Memory = BlockSort<typename Source::Key, kThreads, kItems>;
  return launch(ctx, static_cast<unsigned>(rows), kThreads, sizeof(Memory),
                block_sort_kernel<kThreads, kItems, Source, Sink>, from, sink, static_cast<int>(n), bits,
                ctx.predicate);
}

}  // namespace aicf::cuda
