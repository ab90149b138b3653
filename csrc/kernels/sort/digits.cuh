// How elements of a block find their places by a digit: what the sort of a tile and that of long rows share.
// No atomics, so the same places each time.
#pragma once
#include "kernels/common/launch.cuh"
#include "kernels/sort/memory.h"

namespace aicf::cuda {

constexpr unsigned kAll = 0xffffffffu;

// The lanes of the warp that have the same digit, of 0 … kDigits. By votes: __match_any_sync takes a turn for
// each value.
__device__ __forceinline__ unsigned lanes_alike(uint32_t digit) {
  unsigned alike = kAll;
#pragma unroll
  for (int bit = 0; bit <= kDigitBits; ++bit) {
    const bool is_set = digit >> bit & 1;
    const unsigned lanes = __ballot_sync(kAll, is_set);
    alike &= is_set ? lanes : ~lanes;
  }
  return alike;
}

// Of kRounds times 32 elements of a warp, in their order, how many in front of each have the same digit, and
// how many have each in `counts`, which is of the warp and zero at first. The digit kDigits is none.
template <int kRounds>
__device__ __forceinline__ void count_digits(const uint32_t (&digits)[kRounds], uint32_t* counts,
                                             uint32_t (&in_front)[kRounds]) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const uint32_t digit = digits[round];
    const unsigned alike = lanes_alike(digit);
    const int before = __popc(alike & ((1u << lane) - 1));
    const uint32_t seen = digit < kDigits ? counts[digit] : 0;
    __syncwarp();
    if (digit < kDigits && before == 0) counts[digit] = seen + __popc(alike);
    __syncwarp();
    in_front[round] = seen + before;
  }
}

// The sum of `x` of the lanes in front and of this one.
__device__ __forceinline__ uint32_t sum_to_here(uint32_t x) {
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const uint32_t other = __shfl_up_sync(kAll, x, step);
    if (static_cast<int>(threadIdx.x % kWarp) >= step) x += other;
  }
  return x;
}

// The sum of `x` of the threads in front in this block; of_warp is shared, a number for each warp. It must
// stay as it is up to the next barrier.
__device__ __forceinline__ uint32_t sum_in_front_before_barrier(uint32_t x, uint32_t* of_warp) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const uint32_t sum = sum_to_here(x);
  if (lane == kWarp - 1) of_warp[warp] = sum;
  __syncthreads();
  uint32_t before = 0;
  for (int w = 0; w < warp; ++w) before += of_warp[w];
  return before + sum - x;
}

// The same; ends with a barrier.
__device__ __forceinline__ uint32_t sum_in_front(uint32_t x, uint32_t* of_warp) {
  const uint32_t sum = sum_in_front_before_barrier(x, of_warp);
  __syncthreads();
  return sum;
}

// counts[warp][digit] of a block become the places of the first element of each warp with each digit, where
// all digits in front come first: places in the block. The number of a digit is that of its thread; returns
// the place of its first element. Begins behind a barrier, ends with one.
template <int kThreads>
__device__ __forceinline__ uint32_t place_digits(uint32_t (*counts)[kDigits], uint32_t* of_warp) {
  uint32_t sum = 0;
  if (threadIdx.x < kDigits)
    for (int w = 0; w < kThreads / kWarp; ++w) sum += counts[w][threadIdx.x];
  const uint32_t first = sum_in_front(sum, of_warp);
  if (threadIdx.x < kDigits) {
    uint32_t before = first;
    for (int w = 0; w < kThreads / kWarp; ++w) {
      const uint32_t count = counts[w][threadIdx.x];
      counts[w][threadIdx.x] = before;
      before += count;
    }
  }
  __syncthreads();
  return first;
}

}  // namespace aicf::cuda
