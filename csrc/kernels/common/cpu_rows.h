// What softmax and cross entropy know of a row on the CPU.
#pragma once
#include "kernels/common/cpu_sum.h"
#include "kernels/eltwise/ops.h"  // scalar::exp

namespace aicf::cpu {

// Of numbers; a NaN is passed over. Compared in lanes, so that the loop vectorises.
template <class T>
Compute<T> largest_of(const T* x, int64_t n) {
  constexpr int kLanes = 16;
  Compute<T> lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<Compute<T>>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = std::max(lanes[lane], widen(x[i + lane]));
  for (; i < n; ++i) lanes[0] = std::max(lanes[0], widen(x[i]));
  return *std::max_element(lanes, lanes + kLanes);
}

// exp(x - largest) of a row, and their sum, at least 1. NaN if any x is NaN or +infinity, or all are
// -infinity: so are torch's softmax and log_softmax.
template <class T>
struct RowExponentials {
  Compute<T> largest;
  double sum;

  RowExponentials(const T* x, int64_t n) : largest(largest_of(x, n)) {
    const Compute<T> most = largest;  // a reference to `this` would keep loops over the row from vectorising
    sum = sum_terms<Compute<T>>(n, [=](int64_t i) { return scalar::exp(widen(x[i]) - most); });
  }
  Compute<T> operator()(T x) const { return scalar::exp(widen(x) - largest); }
};

}  // namespace aicf::cpu
