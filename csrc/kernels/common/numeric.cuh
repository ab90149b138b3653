// Element types on the device: what they are computed in, conversion in and out, vectors of them, and
// dispatch from a DType.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "op/status.h"
#include "op/tensor_desc.h"

namespace aicf::cuda {

// f16 and bf16 are computed in f32 and rounded once, to nearest even.
template <class T>
struct ComputeType {
  using type = float;
};
template <>
struct ComputeType<double> {
  using type = double;
};
template <class T>
using Compute = typename ComputeType<T>::type;

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T>
__device__ __forceinline__ T narrow(Compute<T> x);
template <>
__device__ __forceinline__ float narrow<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ double narrow<double>(double x) {
  return x;
}
template <>
__device__ __forceinline__ __half narrow<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// W neighbours that move in one access; the address must be a multiple of sizeof(T) * W.
template <class T, int W>
struct alignas(sizeof(T) * W) Vec {
  T at[W];
};

// Elements of T in the widest access, 16 bytes.
template <class T>
constexpr int kWidest = 16 / static_cast<int>(sizeof(T));

template <class T>
struct TypeTag {
  using type = T;
};

// Calls f(TypeTag<T>{}) for f16 and bf16.
template <class F>
Status with_half_type(DType dtype, F&& f) {
  return dtype == DType::F16 ? f(TypeTag<__half>{}) : f(TypeTag<__nv_bfloat16>{});
}

// Calls f(TypeTag<T>{}) for the float type `dtype`; the schemas let no other type through.
template <class F>
Status with_float_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::F32:
      return f(TypeTag<float>{});
    case DType::F64:
      return f(TypeTag<double>{});
    case DType::F16:
      return f(TypeTag<__half>{});
    case DType::BF16:
      return f(TypeTag<__nv_bfloat16>{});
    default:
      return Status::invalid(std::string("expected a float dtype, got ") + dtype_name(dtype));
  }
}

}  // namespace aicf::cuda
