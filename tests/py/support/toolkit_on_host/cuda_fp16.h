// CUDA's f16, as the kernels of csrc use it.
#pragma once
#include "cuda_on_host.h"

struct __half {
  unsigned short bits;
  __half() = default;
  explicit __half(float x) : bits(float_to_half(x)) {}
};
inline __half __ushort_as_half(unsigned short bits) { return bits_as<__half>(bits); }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline float __half2float(__half x) { return half_to_float(x.bits); }
inline __half __float2half_rn(float x) { return __half(x); }
