// What softmax and cross entropy know of a row on the CPU.
#pragma once
#include "kernels/common/cpu_sum.h"
#include "kernels/eltwise/ops.h"  // scalar::exp

namespace aicf::cpu {

// exp(x - largest) of a row, and their sum, at least 1. NaN if any x is NaN or +infinity, or all are
// -infinity: so are torch's softmax and log_softmax.
template <class T>
struct RowExponentials {
  Compute<T> largest = -std::numeric_limits<Compute<T>>::infinity();
  double sum;

  RowExponentials(const T* x, int64_t n) {
    Compute<T> most = largest;
    for (int64_t i = 0; i < n; ++i) most = std::max(most, widen(x[i]));
    largest = most;
    sum = sum_terms<Compute<T>>(n, [=](int64_t i) { return scalar::exp(widen(x[i]) - most); });
  }
  Compute<T> operator()(T x) const { return scalar::exp(widen(x) - largest); }
};

}  // namespace aicf::cpu
