// Sums and maxima over the threads of a warp or a block, always in the same order.
#pragma once
#include "kernels/common/launch.cuh"

namespace aicf::cuda {

struct Add {
  template <class C>
  __device__ __forceinline__ C operator()(C x, C y) const {
    return x + y;
  }
};
struct Max {  // of numbers; a NaN operand is passed over
  __device__ __forceinline__ float operator()(float x, float y) const { return fmaxf(x, y); }
  __device__ __forceinline__ double operator()(double x, double y) const { return fmax(x, y); }
};

// Every lane gets the result.
template <class Op, class C>
__device__ __forceinline__ C reduce_warp(C value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value = Op{}(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

// Every one of THREADS threads of the group that the warp belongs to gets the result. A group is a warp, or
// the whole block; then all threads must call this together.
template <class Op, int THREADS, class C>
__device__ __forceinline__ C reduce_group(C value) {
  value = reduce_warp<Op>(value);
  if constexpr (THREADS > kWarp) {
    constexpr int kWarps = THREADS / kWarp;
    static_assert(kWarps <= kWarp, "the first warp adds one value of each");
    __shared__ C of_warps[kWarps];
    __syncthreads();  // an earlier call's values have been read
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = of_warps[0];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) value = Op{}(value, of_warps[warp]);
  }
  return value;
}

}  // namespace aicf::cuda
