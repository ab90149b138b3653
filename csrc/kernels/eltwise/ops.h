// Every elementwise formula, once, for both devices. Adding an elementwise op: its line here.
//
// Formulas are templates over the compute type C (float, or double for f64 tensors); f16 and bf16 are
// computed in float and rounded once. They follow torch at the special values: relu(NaN) = NaN, relu_bwd
// passes dy where the saved value is NaN.
#pragma once
#include <cmath>

#include "kernels/common/vector_math.h"
#include "op/attrs.h"

#ifdef __CUDACC__
#define AICF_HD __host__ __device__ __forceinline__
#else
#define AICF_HD AICF_INLINE
#endif

// clang-format off: it takes the products of a formula for pointer declarations

// number and name in aicf_mlir.OpKind, name in the kernel dialect, doc, formula of x
#define AICF_UNARY_OPS(X)                                                                          \
  X(8, EltwiseNeg, neg, "-x", -x)                                                                  \
  X(1, EltwiseRelu, relu, "max(x, 0); NaN passes", x <= C(0) ? C(0) : x)                           \
  X(9, EltwiseGelu, gelu, "x Phi(x)", x * normal_cdf(x, normal_power(x)))                          \
  X(10, EltwiseGeluTanh, gelu_tanh, "the approximation of gelu by tanh",                           \
    C(0.5) * x * (C(1) + scalar::tanh(gelu_tanh_argument(x))))                                     \
  X(11, EltwiseSilu, silu, "x sigmoid(x)", x / (C(1) + scalar::exp(-x)))                           \
  X(12, EltwiseTanh, tanh, "tanh(x)", scalar::tanh(x))                                             \
  X(13, EltwiseSigmoid, sigmoid, "1 / (1 + exp(-x))", C(1) / (C(1) + scalar::exp(-x)))

// … formula of x and y; operands broadcast
#define AICF_BINARY_OPS(X)                                          \
  X(0, EltwiseAdd, add, "x + y, broadcasting as NumPy does", x + y) \
  X(5, EltwiseSub, sub, "x - y, broadcasting as NumPy does", x - y) \
  X(6, EltwiseMul, mul, "x * y, broadcasting as NumPy does", x * y) \
  X(7, EltwiseDiv, div, "x / y, broadcasting as NumPy does", x / y)

// … formula of dy and of the value saved by the forward op: its result y for relu, tanh and sigmoid, its input x
// for gelu, gelu_tanh and silu
#define AICF_BACKWARD_OPS(X)                                                                       \
  X(14, ReluBwd, relu_bwd, "gradient of relu from dy and its result", saved <= C(0) ? C(0) : dy)   \
  X(18, TanhBwd, tanh_bwd, "gradient of tanh from dy and its result", dy * (C(1) - saved * saved)) \
  X(19, SigmoidBwd, sigmoid_bwd, "gradient of sigmoid from dy and its result",                     \
    dy * (C(1) - saved) * saved)                                                                   \
  X(15, GeluBwd, gelu_bwd, "gradient of gelu from dy and its operand", dy * gelu_slope(saved))     \
  X(16, GeluTanhBwd, gelu_tanh_bwd, "gradient of gelu_tanh from dy and its operand",               \
    dy * gelu_tanh_slope(saved))                                                                   \
  X(17, SiluBwd, silu_bwd, "gradient of silu from dy and its operand", dy * silu_slope(saved))

// value of `act` and `act_grad`, forward name, backward name: the epilogues of gemm_epilogue
#define AICF_ACTIVATIONS(X)             \
  X(Relu, relu, relu_bwd)               \
  X(Gelu, gelu, gelu_bwd)               \
  X(GeluTanh, gelu_tanh, gelu_tanh_bwd) \
  X(Silu, silu, silu_bwd)               \
  X(Tanh, tanh, tanh_bwd)               \
  X(Sigmoid, sigmoid, sigmoid_bwd)

// clang-format on

namespace aicf {

enum class Act : int64_t {
  None,
#define X(value, forward, backward) value,
  AICF_ACTIVATIONS(X)
#undef X
};
inline Names names_of(Act) {
  static const std::vector<const char*> names = {"none",
#define X(value, forward, backward) #forward,
                                                 AICF_ACTIVATIONS(X)
#undef X
  };
  return names;
}

// The math functions of either device, chosen by type; on the host those of float vectorise.
namespace scalar {

#ifdef __CUDA_ARCH__
AICF_HD float exp(float x) { return ::expf(x); }
AICF_HD float tanh(float x) { return ::tanhf(x); }
AICF_HD float fused(float x, float y, float z) { return ::fmaf(x, y, z); }
// 1 / x for an x of 1 or more, within one unit in the last place.
AICF_HD float inverse(float x) {
  float found;
  asm("rcp.approx.f32 %0, %1;" : "=f"(found) : "f"(x));
  return found;
}
#else
AICF_HD float exp(float x) { return vector_math::exp(x); }
AICF_HD float tanh(float x) { return vector_math::tanh(x); }
AICF_HD float fused(float x, float y, float z) { return vector_math::fused(x, y, z); }
AICF_HD float inverse(float x) { return 1.0f / x; }
#endif
AICF_HD float sqrt(float x) { return ::sqrtf(x); }
AICF_HD double exp(double x) { return ::exp(x); }
AICF_HD double erf(double x) { return ::erf(x); }
AICF_HD double tanh(double x) { return ::tanh(x); }
AICF_HD double sqrt(double x) { return ::sqrt(x); }

}  // namespace scalar

template <class C>
constexpr C kSqrtHalf = C(0.70710678118654752440);  // 1/sqrt(2)
template <class C>
constexpr C kSqrtTwoOverPi = C(0.79788456080286535588);
template <class C>
constexpr C kInverseSqrtTwoPi = C(0.39894228040143267794);
template <class C>
constexpr C kGeluCubic = C(0.044715);

// tanh form of GELU: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
template <class C>
AICF_HD C gelu_tanh_argument(C x) {
  return kSqrtTwoOverPi<C> * (x + kGeluCubic<C> * (x * x * x));
}

// exp(-x^2 / 2).
template <class C>
AICF_HD C normal_power(C x) {
  return scalar::exp(C(-0.5) * (x * x));
}

// Phi(x), the distribution function of the standard normal, from x and that power: in f32 one of them is the
// power times Mills' ratio, which has no other exponential (aicf_mlir/dialects/nn/rows/normal.py).
AICF_HD double normal_cdf(double x, double) { return 0.5 * (1.0 + scalar::erf(x * kSqrtHalf<double>)); }
AICF_HD float normal_cdf(float x, float power) {
  const float t = scalar::inverse(scalar::fused(::fabsf(x), 0.27f, 1.0f));
  float ratio = 0.028953036823812103f;
  ratio = scalar::fused(ratio, t, -0.12644529478361619f);
  ratio = scalar::fused(ratio, t, 0.16969915177049336f);
  ratio = scalar::fused(ratio, t, -0.06910709490952277f);
  ratio = scalar::fused(ratio, t, 0.10775076240913872f);
  ratio = scalar::fused(ratio, t, 0.07208307677569992f);
  ratio = scalar::fused(ratio, t, 0.10180159018186001f);
  ratio = scalar::fused(ratio, t, 0.10754420996589761f);
  ratio = scalar::fused(ratio, t, 0.10772057362744453f);
  const float tail = power * (ratio * t);
  return x < 0.0f ? tail : 1.0f - tail;
}

// d gelu / dx = Phi(x) + x phi(x).
template <class C>
AICF_HD C gelu_slope(C x) {
  const C power = normal_power(x);
  return normal_cdf(x, power) + x * (power * kInverseSqrtTwoPi<C>);
}

template <class C>
AICF_HD C gelu_tanh_slope(C x) {
  C t = scalar::tanh(gelu_tanh_argument(x));
  C argument_slope = kSqrtTwoOverPi<C> * (C(1) + C(3) * kGeluCubic<C> * x * x);
  return C(0.5) * (C(1) + t) + C(0.5) * x * (C(1) - t * t) * argument_slope;
}

template <class C>
AICF_HD C silu_slope(C x) {
  C s = C(1) / (C(1) + scalar::exp(-x));
  return s * (C(1) + x * (C(1) - s));
}

// One functor per op, e.g. ops::relu{}(x), ops::add{}(x, y), ops::relu_bwd{}(dy, saved).
namespace ops {

#define X(number, kind, name, doc, formula) \
  struct name {                             \
    template <class C>                      \
    AICF_HD C operator()(C x) const {       \
      return formula;                       \
    }                                       \
  };
AICF_UNARY_OPS(X)
#undef X

#define X(number, kind, name, doc, formula) \
  struct name {                             \
    template <class C>                      \
    AICF_HD C operator()(C x, C y) const {  \
      return formula;                       \
    }                                       \
  };
AICF_BINARY_OPS(X)
#undef X

#define X(number, kind, name, doc, formula)     \
  struct name {                                 \
    template <class C>                          \
    AICF_HD C operator()(C dy, C saved) const { \
      return formula;                           \
    }                                           \
  };
AICF_BACKWARD_OPS(X)
#undef X

// Act::None: forward keeps z, backward keeps dy.
struct identity {
  template <class C>
  AICF_HD C operator()(C x) const {
    return x;
  }
  template <class C>
  AICF_HD C operator()(C dy, C) const {
    return dy;
  }
};

}  // namespace ops

// The epilogue functions with the activation known at run time only.
template <class C>
AICF_HD C activate(Act act, C z) {
  switch (act) {
#define X(value, forward, backward) \
  case Act::value:                  \
    return ops::forward{}(z);
    AICF_ACTIVATIONS(X)
#undef X
    case Act::None:
      break;
  }
  return z;
}

template <class C>
AICF_HD C activate_backward(Act act, C dy, C saved) {
  switch (act) {
#define X(value, forward, backward) \
  case Act::value:                  \
    return ops::backward{}(dy, saved);
    AICF_ACTIVATIONS(X)
#undef X
    case Act::None:
      break;
  }
  return dy;
}

}  // namespace aicf
