// Sums on the CPU: a fixed order, independent accumulators so that the compiler vectorises, and an error that
// does not grow with the length: blocks are summed in the compute type, their sums in double.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/common/cpu_parallel.h"
#include "kernels/common/cpu_types.h"

namespace aicf::cpu {

constexpr int64_t kSumBlock = 512;   // terms that meet in the compute type, along a row
constexpr int64_t kSumRows = 16;     // and along a column
constexpr int64_t kSumColumns = 64;  // columns summed together

// Sum of term(i) for 0 <= i < n; the terms have the compute type C.
template <class C, class Term>
double sum_terms(int64_t n, Term term) {
  constexpr int kLanes = 16;
  double total = 0;
  for (int64_t start = 0; start < n; start += kSumBlock) {
    const int64_t end = std::min(n, start + kSumBlock);
    C lanes[kLanes] = {};
    int64_t i = start;
    for (; i + kLanes <= end; i += kLanes)
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
    for (int lane = 0; i < end; ++i, ++lane) lanes[lane] += term(i);
    for (int width = kLanes / 2; width > 0; width /= 2)
      for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
    total += lanes[0];
  }
  return total;
}

// The same by several threads. The parts follow from n alone, and meet in their order.
template <class C, class Term>
double sum_many_terms(int64_t n, Term term) {
  constexpr int64_t kPart = 32 * kSumBlock;
  if (n <= kPart) return sum_terms<C>(n, term);
  std::vector<double> parts(static_cast<size_t>((n + kPart - 1) / kPart));
  in_parallel(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part)
      parts[static_cast<size_t>(part)] =
          sum_terms<C>(std::min(kPart, n - part * kPart), [&](int64_t i) { return term(part * kPart + i); });
  });
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

// total[j] = sum over the rows of row(i)[j] for j < columns <= kSumColumns; row(i) points to the first of the
// columns.
template <class T, class Row>
void sum_columns(int64_t rows, int64_t columns, Row row, double* total) {
  std::fill_n(total, columns, 0.0);
  for (int64_t start = 0; start < rows; start += kSumRows) {
    const int64_t end = std::min(rows, start + kSumRows);
    Compute<T> block[kSumColumns] = {};
    for (int64_t i = start; i < end; ++i) {
      const T* x = row(i);
      for (int64_t j = 0; j < columns; ++j) block[j] += widen(x[j]);
    }
    for (int64_t j = 0; j < columns; ++j) total[j] += block[j];
  }
}

}  // namespace aicf::cpu
