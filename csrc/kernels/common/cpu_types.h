// Element types on the CPU: what they are computed in, conversion in and out, and dispatch from a DType.
// Conversions are branch-free integer and float arithmetic, so loops over them vectorise without f16
// instructions.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/common/float_bits.h"
#include "op/status.h"
#include "op/tensor_desc.h"

namespace aicf::cpu {

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

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

inline float widen(float x) { return x; }
inline double widen(double x) { return x; }
inline float widen(BFloat16 x) { return float_from_bits(static_cast<uint32_t>(x.bits) << 16); }
// The exponent is moved from bias 15 to 127 by a multiplication, which also makes subnormals right; infinity
// and NaN keep all exponent bits set.
inline float widen(Half x) {
  const uint32_t magnitude = static_cast<uint32_t>(x.bits & 0x7fff) << 13;
  const uint32_t special = (x.bits & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;
  const uint32_t scaled = float_bits(float_from_bits(magnitude) * 0x1p112f);
  return float_from_bits(scaled | special | static_cast<uint32_t>(x.bits & 0x8000) << 16);
}

template <class T>
T narrow(Compute<T> x);
template <>
inline float narrow<float>(float x) {
  return x;
}
template <>
inline double narrow<double>(double x) {
  return x;
}
template <>
inline BFloat16 narrow<BFloat16>(float x) {
  const uint32_t bits = float_bits(x);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const uint32_t quiet_nan = (bits >> 16 & 0x8000) | 0x7fc0;
  return {static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded)};
}
// Adding a power of two whose last bit is the last bit that f16 keeps lets the float adder do the rounding.
// The two products turn what is beyond f16's range into infinity.
template <>
inline Half narrow<Half>(float x) {
  const uint32_t bits = float_bits(x);
  const uint32_t doubled = bits << 1;  // without the sign
  const float magnitude = float_from_bits(bits & 0x7fffffff) * 0x1p112f * 0x1p-110f;
  uint32_t exponent = doubled & 0xff000000u;
  exponent = exponent < 0x71000000u ? 0x71000000u : exponent;  // subnormals of f16 share one exponent
  const uint32_t rounded = float_bits(float_from_bits((exponent >> 1) + 0x07800000u) + magnitude);
  const uint32_t finite = (rounded >> 13 & 0x7c00) + (rounded & 0x0fff);
  return {static_cast<uint16_t>((bits >> 16 & 0x8000) | (doubled > 0xff000000u ? 0x7e00u : finite))};
}

// A double as a float that rounds on to a narrower type as the double itself would: truncated, with the last
// bit set if anything was cut off ("round to odd").
inline float truncate_sticky(double x) {
  const float nearest = static_cast<float>(x);
  const double back = nearest;
  if (back == x || x != x) return nearest;
  const uint32_t bits = float_bits(nearest) - (std::fabs(back) > std::fabs(x) ? 1 : 0);
  return float_from_bits(bits | 1);
}

// A double rounded once to T.
template <class T>
T narrow_double(double x) {
  return narrow<T>(truncate_sticky(x));
}
template <>
inline float narrow_double<float>(double x) {
  return static_cast<float>(x);
}
template <>
inline double narrow_double<double>(double x) {
  return x;
}

template <class T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

template <class T>
struct TypeTag {
  using type = T;
};

// Calls f(TypeTag<T>{}) for the float type `dtype`; the schemas let no other type through.
template <class F>
Status with_float_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::F32:
      f(TypeTag<float>{});
      return Status::ok();
    case DType::F64:
      f(TypeTag<double>{});
      return Status::ok();
    case DType::F16:
      f(TypeTag<Half>{});
      return Status::ok();
    case DType::BF16:
      f(TypeTag<BFloat16>{});
      return Status::ok();
    default:
      return Status::invalid(std::string("expected a float dtype, got ") + dtype_name(dtype));
  }
}

// An operand's elements.
template <class T>
const T* elements(const TensorDesc& t) {
  return static_cast<const T*>(t.data);
}

}  // namespace aicf::cpu
