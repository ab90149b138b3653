// What every prebuilt gemm kernel does with its finished sums, once: bias, activation or activation gradient,
// second result. The functors that device/problem.cuh asks for, from a GemmProblem.
#pragma once
#include <climits>

#include "kernels/common/numeric.cuh"
#include "kernels/eltwise/ops.h"
#include "kernels/gemm/device/problem.cuh"
#include "kernels/gemm/problem.h"

namespace aicf::cuda {

// Whether every row starts at a multiple of 16 bytes. An operand that is not there has no rows.
template <class T, class Pointer>
bool is_aligned(const Matrices<Pointer>& matrices) {
  return reinterpret_cast<uintptr_t>(matrices.data) % 16 == 0 && matrices.leading % kWidest<T> == 0 &&
         matrices.outer % kWidest<T> == 0 && matrices.inner % kWidest<T> == 0;
}

// Whether all accesses of the epilogue can be 16 bytes wide: rows end at a multiple of them too.
template <class T>
bool results_are_aligned(const GemmProblem& p) {
  return p.n % kWidest<T> == 0 && is_aligned<T>(p.saved) && is_aligned<T>(p.out) && is_aligned<T>(p.pre) &&
         reinterpret_cast<uintptr_t>(p.bias) % 16 == 0;
}

// Whether those of the product can be, too.
template <class T>
bool rows_are_aligned(const GemmProblem& p) {
  return results_are_aligned<T>(p) && is_aligned<T>(p.a) && is_aligned<T>(p.b);
}

// Calls f with a type whose `value` is `act`: to be asked once for all neighbours.
template <class F>
__device__ __forceinline__ void with_activation(Act act, const F& f) {
  switch (act) {
#define X(name, forward, backward) \
  case Act::name:                  \
    return f(std::integral_constant<Act, Act::name>{});
    AICF_ACTIVATIONS(X)
#undef X
    case Act::None:
      return f(std::integral_constant<Act, Act::None>{});
  }
}

// A GemmProblem of one product, in numbers of 32 bits.
struct SmallGemm {
  template <class Pointer>
  struct Matrix {
    Pointer data;
    int leading;

    template <class T>
    __device__ __forceinline__ T* of(const Product&) const {
      return static_cast<T*>(data);
    }
  };

  int m, n, k;
  Matrix<const void*> a, b, saved;
  Matrix<void*> out, pre;
  const void* bias;
  void* bias_grad;
  Act act, act_grad;
};

// Whether that says it; see SmallProblem.
inline bool is_small(const GemmProblem& p) {
  const auto fits = [](int64_t rows, int64_t leading) { return leading <= INT_MAX / (rows + 256); };
  constexpr int64_t kMost = INT_MAX / 2;
  return p.batch == 1 && p.m < kMost && p.n < kMost && p.k < kMost &&
         fits(p.trans_a ? p.k : p.m, p.a.leading) && fits(p.trans_b ? p.n : p.k, p.b.leading) &&
         fits(p.m, p.saved.leading) && fits(p.m, p.out.leading) && fits(p.m, p.pre.leading);
}

inline SmallGemm small_gemm(const GemmProblem& p) {
  const auto matrix = [](const auto& all) {
    return SmallGemm::Matrix<decltype(all.data)>{all.data, static_cast<int>(all.leading)};
  };
  return {static_cast<int>(p.m),
          static_cast<int>(p.n),
          static_cast<int>(p.k),
          matrix(p.a),
          matrix(p.b),
          matrix(p.saved),
          matrix(p.out),
          matrix(p.pre),
          p.bias,
          p.bias_grad,
          p.act,
          p.act_grad};
}

// Needs the addresses of W neighbours in every operand to be multiples of W elements. P is GemmProblem or
// SmallGemm.
template <class T, class P = GemmProblem>
struct Finish {
  const P& p;

  template <int W>
  __device__ __forceinline__ void operator()(const gemm::Member& member, const Compute<T> (&z)[W],
                                             int64_t row, int64_t column) const {
    using Vector = Vec<T, W>;
    const Product product{member.outer, member.inner};
    Vector bias{}, saved{}, pre, out;  // zeros, or what is left of the last call takes registers
    if (p.bias) bias = *reinterpret_cast<const Vector*>(static_cast<const T*>(p.bias) + column);
    if (p.saved.data)
      saved = *reinterpret_cast<const Vector*>(p.saved.template of<const T>(product) + row * p.saved.leading +
                                               column);
    Compute<T> sums[W];
#pragma unroll
    for (int w = 0; w < W; ++w) {
      sums[w] = p.bias ? z[w] + widen(bias.at[w]) : z[w];
      pre.at[w] = narrow<T>(sums[w]);
      if constexpr (sizeof(T) == 2) sums[w] = widen(pre.at[w]);  // act sees the value that pre has
    }
    if (p.saved.data) {
      with_activation(p.act_grad, [&](auto act) {
#pragma unroll
        for (int w = 0; w < W; ++w)
          out.at[w] = narrow<T>(activate_backward(decltype(act)::value, sums[w], widen(saved.at[w])));
      });
    } else {
      with_activation(p.act, [&](auto act) {
#pragma unroll
        for (int w = 0; w < W; ++w) out.at[w] = narrow<T>(activate(decltype(act)::value, sums[w]));
      });
    }
    if (p.pre.data)
      *reinterpret_cast<Vector*>(p.pre.template of<T>(product) + row * p.pre.leading + column) = pre;
    *reinterpret_cast<Vector*>(p.out.template of<T>(product) + row * p.out.leading + column) = out;
  }
};

template <class T, class P = GemmProblem>
struct BiasGradient {
  const P& p;

  __device__ __forceinline__ bool wanted() const { return p.bias_grad != nullptr; }
  __device__ __forceinline__ void operator()(const gemm::Member&, int64_t row, Compute<T> total) const {
    static_cast<T*>(p.bias_grad)[row] = narrow<T>(total);
  }
};

}  // namespace aicf::cuda
