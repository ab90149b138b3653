// What every gemm kernel does with its finished sums, once: bias, activation or activation gradient, second
// result.
#pragma once
#include "kernels/common/numeric.cuh"
#include "kernels/eltwise/ops.h"
#include "kernels/gemm/problem.h"

namespace aicf::cuda {

// Finishes W neighbouring elements of `row`, the first of them in `column`: `z` are their sums. W > 1 needs
// their addresses in every operand to be multiples of W elements.
template <class T, int W>
__device__ __forceinline__ void finish(const GemmProblem& p, const Product& product, const Compute<T> (&z)[W],
                                       int64_t row, int64_t column) {
  using Vector = Vec<T, W>;
  Vector bias, saved, pre, out;
  if (p.bias) bias = *reinterpret_cast<const Vector*>(static_cast<const T*>(p.bias) + column);
  if (p.saved.data)
    saved = *reinterpret_cast<const Vector*>(p.saved.of<const T>(product) + row * p.saved.leading + column);
#pragma unroll
  for (int w = 0; w < W; ++w) {
    Compute<T> value = z[w];
    if (p.bias) value += widen(bias.at[w]);
    pre.at[w] = narrow<T>(value);
    value = p.saved.data ? activate_backward(p.act_grad, value, widen(saved.at[w])) : activate(p.act, value);
    out.at[w] = narrow<T>(value);
  }
  if (p.pre.data) *reinterpret_cast<Vector*>(p.pre.of<T>(product) + row * p.pre.leading + column) = pre;
  *reinterpret_cast<Vector*>(p.out.of<T>(product) + row * p.out.leading + column) = out;
}

}  // namespace aicf::cuda
