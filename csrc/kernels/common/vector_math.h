// exp and tanh of a float without branches or library calls, so that loops over them vectorise. For the host.
//
// Errors against the exact value, over all floats: at most 2 units in the last place. Infinities and NaN as
// in <cmath>. The polynomials are minimax fits on the intervals named beside them.
#pragma once
#include "kernels/common/float_bits.h"

// A call, or a jump over what is not needed, would keep a loop from vectorising.
#define AICF_INLINE inline __attribute__((always_inline))

namespace aicf::vector_math {

AICF_INLINE float absolute(float x) { return float_from_bits(float_bits(x) & 0x7fffffffu); }
AICF_INLINE float with_sign_of(float magnitude, float x) {
  return float_from_bits(float_bits(magnitude) | (float_bits(x) & 0x80000000u));
}

// a where the condition holds, else b; both are computed.
AICF_INLINE float select(bool condition, float a, float b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return float_from_bits((float_bits(a) & mask) | (float_bits(b) & ~mask));
}

// x y + z, rounded once.
#ifdef __FMA__
AICF_INLINE float fused(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
#else
// The same bits without the instruction. The product is exact in double; a sum that is not becomes the
// neighbour whose last bit is 1 on the side of the exact sum, and rounds to float as that would. (Boldo and
// Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008.)
AICF_INLINE float fused(float x, float y, float z) {
  const double product = static_cast<double>(x) * y, sum = product + z, part = sum - product;
  const double error = (product - (sum - part)) + (z - part);
  uint64_t bits;
  std::memcpy(&bits, &sum, sizeof bits);
  const uint64_t inexact = (error < 0.0) | (error > 0.0);
  const uint64_t outwards = ((error > 0.0) & (sum > 0.0)) | ((error < 0.0) & (sum < 0.0));
  bits += inexact & ~bits & 1 ? 2 * outwards - 1 : 0;
  double odd;
  std::memcpy(&odd, &bits, sizeof odd);
  return static_cast<float>(odd);
}
#endif

// The parts of exp(x) = 2^n exp(r) with n = round(x / ln 2) and |r| <= ln 2 / 2.
constexpr float kRound = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits
AICF_INLINE float shifted_power(float x) { return fused(x, 1.44269504088896341f, kRound); }
AICF_INLINE float exp_of_rest(float x, float shifted) {
  const float n = shifted - kRound;
  const float r = fused(n, -0x1.7f7d1cp-20f, fused(n, -0x1.62e4p-1f, x));  // ln 2 in two parts
  float p = 1.381459878757596e-3f;                                         // (exp(r) - 1 - r) / r^2
  p = fused(p, r, 8.368716575205326e-3f);
  p = fused(p, r, 4.166838899254799e-2f);
  p = fused(p, r, 1.666652113199234e-1f);
  p = fused(p, r, 4.999999403953552e-1f);
  return fused(p * r, r, r) + 1.0f;
}

AICF_INLINE float exp(float x) {
  x = x > 90.0f ? 90.0f : x;      // infinity from 88.73 on
  x = x < -105.0f ? -105.0f : x;  // zero from -103.98 on; NaN passes both
  const float shifted = shifted_power(x), p = exp_of_rest(x, shifted);
  const int32_t power = static_cast<int32_t>(float_bits(shifted)) - static_cast<int32_t>(float_bits(kRound));
  const int32_t half = power >> 1;  // 2^n as two factors, each in the range of a float
  const auto power_of_two = [](int32_t e) { return float_from_bits(static_cast<uint32_t>(e + 127) << 23); };
  return p * power_of_two(half) * power_of_two(power - half);
}

// The same for |x| <= 87, where the result is a normal number; for others, NaN too, any number.
AICF_INLINE float normal_exp(float x) {
  const float shifted = shifted_power(x);
  return float_from_bits(float_bits(exp_of_rest(x, shifted)) + (float_bits(shifted) << 23));
}

AICF_INLINE float tanh(float x) {
  const float t = absolute(x), square = x * x;
  float p = -5.717044696211815e-3f;  // (tanh(x) / x - 1) / x^2 for |x| <= 0.625
  p = fused(p, square, 2.065058797597885e-2f);
  p = fused(p, square, -5.374349653720856e-2f);
  p = fused(p, square, 1.3331490755081177e-1f);
  p = fused(p, square, -3.333328366279602e-1f);
  const float small = fused(x, square * p, x);
  const float u = t > 10.0f ? 10.0f : t;  // from where on tanh rounds to 1
  const float large = with_sign_of(1.0f - 2.0f / (normal_exp(u + u) + 1.0f), x);
  return select(t >= 0.625f, large, small);
}

}  // namespace aicf::vector_math
