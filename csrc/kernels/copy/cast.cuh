// One element from one dtype to another, on the device.
#pragma once
#include <limits>
#include <type_traits>

#include "kernels/common/numeric.cuh"

namespace aicf::cuda {

template <class T>
constexpr T kLeast = std::numeric_limits<T>::min();
template <class T>
constexpr T kGreatest = std::numeric_limits<T>::max();
template <class T>
constexpr bool kIsInteger = std::is_integral_v<T>;

template <class T>
__device__ __forceinline__ auto number(T x) {
  if constexpr (kIsInteger<T>)
    return x;
  else
    return widen(x);
}

// One rounding from double; through float there would be two.
__device__ __forceinline__ void round_to(double x, __half* y) { *y = __double2half(x); }
__device__ __forceinline__ void round_to(double x, __nv_bfloat16* y) { *y = __double2bfloat16(x); }

// Between different types. Floats round to nearest even once, floats become integers by truncation (NaN is 0,
// what is out of range is the nearest end of it), anything but zero is true.
template <class To, class From>
__device__ __forceinline__ To cast(From from) {
  const auto x = number(from);
  using X = std::decay_t<decltype(x)>;
  if constexpr (std::is_same_v<To, bool>) {
    return x != X(0);
  } else if constexpr (kIsInteger<To> && kIsInteger<X>) {
    return static_cast<To>(x);
  } else if constexpr (kIsInteger<To>) {
    constexpr X kLow = static_cast<X>(kLeast<To>);  // a power of two: exact, and so is its negation
    if (x != x) return 0;
    if (x < kLow) return kLeast<To>;
    return x >= -kLow ? kGreatest<To> : static_cast<To>(x);
  } else if constexpr (std::is_same_v<X, Compute<To>>) {
    return narrow<To>(x);
  } else if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(x);
  } else {
    To y;
    round_to(static_cast<double>(x), &y);
    return y;
  }
}

// The same bits, of any type, or the cast.
template <class To, class From>
__device__ __forceinline__ To moved(From from) {
  if constexpr (std::is_same_v<To, From>)
    return from;
  else
    return cast<To>(from);
}

}  // namespace aicf::cuda
