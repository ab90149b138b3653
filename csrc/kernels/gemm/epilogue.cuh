// What every prebuilt gemm kernel does with its finished sums, once: bias, activation or activation gradient,
// second result. The functors that device/problem.cuh asks for, from a GemmProblem.
#pragma once
#include "kernels/common/numeric.cuh"
#include "kernels/eltwise/ops.h"
#include "kernels/gemm/device/problem.cuh"
#include "kernels/gemm/problem.h"

namespace aicf::cuda {

// Whether every row of every operand starts at a multiple of 16 bytes, and the results' rows end at one, so
// that all accesses can be that wide. An operand that is not there has no rows.
template <class T>
bool rows_are_aligned(const GemmProblem& p) {
  const auto aligned = [](const auto& matrices) {
    return reinterpret_cast<uintptr_t>(matrices.data) % 16 == 0 && matrices.leading % kWidest<T> == 0 &&
           matrices.outer % kWidest<T> == 0 && matrices.inner % kWidest<T> == 0;
  };
  return p.n % kWidest<T> == 0 && aligned(p.a) && aligned(p.b) && aligned(p.saved) && aligned(p.out) &&
         aligned(p.pre) && reinterpret_cast<uintptr_t>(p.bias) % 16 == 0;
}

// Needs the addresses of W neighbours in every operand to be multiples of W elements.
template <class T>
struct Finish {
  const GemmProblem& p;

  template <int W>
  __device__ __forceinline__ void operator()(const gemm::Member& member, const Compute<T> (&z)[W],
                                             int64_t row, int64_t column) const {
    using Vector = Vec<T, W>;
    const Product product{member.outer, member.inner};
    Vector bias, saved, pre, out;
    if (p.bias) bias = *reinterpret_cast<const Vector*>(static_cast<const T*>(p.bias) + column);
    if (p.saved.data)
      saved = *reinterpret_cast<const Vector*>(p.saved.of<const T>(product) + row * p.saved.leading + column);
#pragma unroll
    for (int w = 0; w < W; ++w) {
      Compute<T> value = z[w];
      if (p.bias) value += widen(bias.at[w]);
      pre.at[w] = narrow<T>(value);
      value =
          p.saved.data ? activate_backward(p.act_grad, value, widen(saved.at[w])) : activate(p.act, value);
      out.at[w] = narrow<T>(value);
    }
    if (p.pre.data) *reinterpret_cast<Vector*>(p.pre.of<T>(product) + row * p.pre.leading + column) = pre;
    *reinterpret_cast<Vector*>(p.out.of<T>(product) + row * p.out.leading + column) = out;
  }
};

template <class T>
struct BiasGradient {
  const GemmProblem& p;

  __device__ __forceinline__ bool wanted() const { return p.bias_grad != nullptr; }
  __device__ __forceinline__ void operator()(const gemm::Member&, int64_t row, Compute<T> total) const {
    static_cast<T*>(p.bias_grad)[row] = narrow<T>(total);
  }
};

}  // namespace aicf::cuda
