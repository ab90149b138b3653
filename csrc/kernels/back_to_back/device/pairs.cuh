// Two neighbours of 16 bits in a word, the first one in its lower half.
#pragma once

namespace aicf::chain {

struct BF16 {
  // To nearest even.
  static __device__ __forceinline__ unsigned pack(float first, float second) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
  }
  static __device__ __forceinline__ float first(unsigned pair) { return __uint_as_float(pair << 16); }
  static __device__ __forceinline__ float second(unsigned pair) {
    return __uint_as_float(pair & 0xffff0000u);
  }
};

struct F16 {
  static __device__ __forceinline__ unsigned pack(float first, float second) {
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
  }
  static __device__ __forceinline__ float first(unsigned pair) {
    float wide;
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}" : "=f"(wide) : "r"(pair));
    return wide;
  }
  static __device__ __forceinline__ float second(unsigned pair) {
    float wide;
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high;}" : "=f"(wide) : "r"(pair));
    return wide;
  }
};

template <class Format>
__device__ __forceinline__ float half_of(unsigned pair, int which) {
  return which == 0 ? Format::first(pair) : Format::second(pair);
}

// Adds eight neighbours to their sums.
template <class Format>
__device__ __forceinline__ void add_chunk(float (&sums)[8], const uint4& chunk) {
  const unsigned pairs[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) sums[i] += half_of<Format>(pairs[i / 2], i % 2);
}

}  // namespace aicf::chain
