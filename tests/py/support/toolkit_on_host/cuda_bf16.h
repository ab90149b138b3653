// CUDA's bf16, as the kernels of csrc use it.
#pragma once
#include "cuda_on_host.h"

struct __nv_bfloat16 {
  unsigned short bits;
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float x) : bits(float_to_bfloat(x)) {}
};
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return bits_as<__nv_bfloat16>(bits); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline float __bfloat162float(__nv_bfloat16 x) { return bits_as<float>(static_cast<unsigned>(x.bits) << 16); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
