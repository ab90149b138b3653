// How elements of a block find their places by a digit: what the sort of a block and that of long rows share.
// No atomics, so the same places each time.
#pragma once
#include "kernels/common/launch.cuh"
#include "kernels/sort/memory.h"

namespace aicf::cuda {

constexpr unsigned kAll = 0xffffffffu;

template <class Key>
__device__ __forceinline__ uint32_t digit_at(Key key, int shift, int bits) {
  return static_cast<uint32_t>(key >> shift) & ((1u << bits) - 1);
}

// The lanes of the warp that have the same digit, of kBits bits. By votes: __match_any_sync takes a turn for
// each value.
template <int kBits>
__device__ __forceinline__ unsigned lanes_alike(uint32_t digit) {
  unsigned alike = kAll;
#pragma unroll
  for (int bit = 0; bit < kBits; ++bit) {
    const bool is_set = digit >> bit & 1;
    const unsigned lanes = __ballot_sync(kAll, is_set);
    alike &= is_set ? lanes : ~lanes;
  }
  return alike;
}

// Of kRounds times 32 elements of a warp, in their order, how many in front of each have the same digit, and
// how many have each in `counts`, which is of the warp and zero at first.
template <int kBits, int kRounds>
__device__ __forceinline__ void count_digits(const uint32_t (&digits)[kRounds], uint32_t* counts,
                                             uint32_t (&in_front)[kRounds]) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const unsigned alike = lanes_alike<kBits>(digits[round]);
    const int before = __popc(alike & ((1u << lane) - 1));
    const uint32_t seen = counts[digits[round]];
    __syncwarp();
    if (before == 0) counts[digits[round]] = seen + __popc(alike);
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

// counts[warp][digit] of a block become those of the warps in front. The number of a digit is that of its
// thread; returns how many elements of the block have it.
template <int kWarps, int kCount>
__device__ __forceinline__ uint32_t sum_of_warps(uint32_t (*counts)[kCount]) {
  uint32_t sum = 0;
  if (threadIdx.x < kCount) {
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const uint32_t count = counts[w][threadIdx.x];
      counts[w][threadIdx.x] = sum;
      sum += count;
    }
  }
  return sum;
}

}  // namespace aicf::cuda
