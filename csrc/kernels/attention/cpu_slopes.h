// What both gradients of attention on the CPU compute for each query: its weights once more, and the gradient
// of its scores.
#pragma once
#include "kernels/attention/cpu_blocks.h"
#include "kernels/common/cpu_sum.h"

namespace aicf::cpu {

// dout * out of query `i`, summed; `dout` is widened.
template <class T>
Compute<T> delta_of(const AttentionProblem& p, int64_t b, int64_t h, int64_t i, const Compute<T>* dout) {
  const T* out = p.saved.of<const T>(b, h) + i * p.saved.row;
  const auto sum = [=](auto at) {
    return sum_terms<Compute<T>>(p.value_size, [=](int64_t c) { return dout[c] * widen(at(c)); });
  };
  const int64_t step = p.saved.column;
  return static_cast<Compute<T>>(step == 1 ? sum([=](int64_t c) { return out[c]; })
                                           : sum([=](int64_t c) { return out[c * step]; }));
}

// A row of products becomes weights, and one of dout valueT the gradient of the scores; `kept`: what dropout
// leaves of it.
template <class T>
void differentiate_row(const AttentionProblem& p, int64_t b, int64_t h, int64_t i, int64_t key, int64_t count,
                       const Compute<T>* dout, const uint8_t* kept, Compute<T>* weights, Compute<T>* slopes) {
  using C = Compute<T>;
  const int64_t at = (b * p.heads + h) * p.queries + i, shown = seen(p, i, key, count);
  const C largest = static_cast<const C*>(p.largest)[at], inverse = 1 / static_cast<const C*>(p.total)[at];
  score_row<T>(p, b, h, i, key, shown, weights);
  const C delta = delta_of<T>(p, b, h, i, dout);
  for (int64_t j = 0; j < shown; ++j) weights[j] = scalar::exp(weights[j] - largest) * inverse;
  std::fill(weights + shown, weights + count, C(0));
  const C factor = static_cast<C>(p.kept);
  if (p.random != nullptr)
    for (int64_t j = 0; j < count; ++j) slopes[j] *= kept[j] ? factor : C(0);
  for (int64_t j = 0; j < count; ++j) slopes[j] = weights[j] * (slopes[j] - delta);  // 0 times NaN is NaN
  if (p.random != nullptr)
    for (int64_t j = 0; j < shown; ++j) weights[j] *= kept[j] ? factor : C(0);
}

}  // namespace aicf::cpu
