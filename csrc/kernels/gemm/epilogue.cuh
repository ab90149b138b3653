// What every gemm kernel does with its finished sums, once: bias, activation or activation gradient, second
// result.
#pragma once
#include "kernels/common/numeric.cuh"
#include "kernels/eltwise/ops.h"
#include "kernels/gemm/problem.h"

namespace aicf::cuda {

// Finishes W neighbouring elements of one row: `z` are their sums, `index` the position of the first in out
// (and pre and saved), `column` its column. W > 1 needs all of these addresses to be multiples of W
// elements.
template <class T, int W>
__device__ __forceinline__ void finish(const GemmProblem& p, const Compute<T> (&z)[W], int64_t index,
                                       int64_t column) {
  using Vector = Vec<T, W>;
  Vector bias, saved, pre, out;
  if (p.bias) bias = *reinterpret_cast<const Vector*>(static_cast<const T*>(p.bias) + column);
  if (p.saved) saved = *reinterpret_cast<const Vector*>(static_cast<const T*>(p.saved) + index);
#pragma unroll
  for (int w = 0; w < W; ++w) {
    Compute<T> value = z[w];
    if (p.bias) value += widen(bias.at[w]);
    pre.at[w] = narrow<T>(value);
    value = p.saved ? activate_backward(p.act_grad, value, widen(saved.at[w])) : activate(p.act, value);
    out.at[w] = narrow<T>(value);
  }
  if (p.pre) *reinterpret_cast<Vector*>(static_cast<T*>(p.pre) + index) = pre;
  *reinterpret_cast<Vector*>(static_cast<T*>(p.out) + index) = out;
}

}  // namespace aicf::cuda
