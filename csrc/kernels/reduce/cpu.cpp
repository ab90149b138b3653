// reduce_sum on the CPU: along rows when x's fastest axis is summed, else along columns, many columns at a
// time.
#include <vector>

#include "kernels/common/cpu_parallel.h"
#include "kernels/common/cpu_sum.h"
#include "kernels/reduce/axes.h"
#include "kernels/reduce/launch.h"

namespace aicf {
namespace {

using namespace cpu;

// The offset in x of index `i` over the axes, last axis fastest.
int64_t offset_of(const Axis* axes, int count, int64_t i) {
  int64_t offset = 0;
  for (int a = count - 1; a > 0; --a) {
    offset += i % axes[a].size * axes[a].stride;
    i /= axes[a].size;
  }
  return count > 0 ? offset + i * axes[0].stride : 0;
}

template <class T>
void sum_rows(const SumAxes& axes, double divisor, const T* x, T* y) {
  const int outer = axes.summed_count - 1;  // summed axes around the innermost one, a run of neighbours
  const int64_t run = outer >= 0 ? axes.summed[outer].size : 1;
  const int64_t runs = axes.summed_size / std::max<int64_t>(run, 1);
  in_parallel(axes.kept_size, grain_rows(axes.summed_size), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* base = x + offset_of(axes.kept, axes.kept_count, i);
      double total = 0;
      for (int64_t r = 0; r < runs; ++r) {
        const T* row = base + offset_of(axes.summed, outer, r);
        total += sum_terms<Compute<T>>(run, [row](int64_t j) { return widen(row[j]); });
      }
      y[i] = narrow_double<T>(total / divisor);
    }
  });
}

// Few long rows, of which threads share the terms: the sums of parts meet in their order. A part is one of a
// run of neighbours, or several short runs.
constexpr int64_t kFewRows = 16, kPartTerms = 1 << 15;

bool has_few_rows(const SumAxes& axes) {
  return axes.kept_size < kFewRows && axes.summed_size >= 2 * kPartTerms;
}

template <class T>
void sum_few_rows(const SumAxes& axes, double divisor, const T* x, T* y) {
  const int outer = axes.summed_count - 1;
  const int64_t run = axes.summed[outer].size, runs = axes.summed_size / run;
  const int64_t cuts = (run + kPartTerms - 1) / kPartTerms, together = std::max<int64_t>(kPartTerms / run, 1);
  const int64_t parts = cuts > 1 ? runs * cuts : (runs + together - 1) / together;
  std::vector<double> totals(static_cast<size_t>(axes.kept_size * parts));
  in_parallel(axes.kept_size * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const T* base = x + offset_of(axes.kept, axes.kept_count, at / parts);
      const int64_t part = at % parts, first = cuts > 1 ? part / cuts : part * together;
      const int64_t cut = cuts > 1 ? part % cuts * kPartTerms : 0, size = std::min(run - cut, kPartTerms);
      double total = 0;
      for (int64_t r = first; r < std::min(first + together, runs); ++r) {
        const T* row = base + offset_of(axes.summed, outer, r) + cut;
        total += sum_terms<Compute<T>>(size, [row](int64_t j) { return widen(row[j]); });
      }
      totals[static_cast<size_t>(at)] = total;
    }
  });
  for (int64_t i = 0; i < axes.kept_size; ++i) {
    double total = 0;
    for (int64_t part = 0; part < parts; ++part) total += totals[static_cast<size_t>(i * parts + part)];
    y[i] = narrow_double<T>(total / divisor);
  }
}

// The columns of a matrix without gaps, of so many rows that threads share them. Several rows are taken as
// one where they are short; the sums of parts, and those of the same column, meet in their order.
constexpr int64_t kLongSum = 1 << 14, kPartRows = 1 << 10;

bool is_long(const SumAxes& axes) {
  return axes.kept_count == 1 && axes.summed_count == 1 && axes.kept_size <= kSumColumns &&
         axes.summed[0].stride == axes.kept_size && axes.summed_size >= kLongSum;
}

template <class T>
void sum_long_columns(const SumAxes& axes, double divisor, const T* x, T* y) {
  const int64_t columns = axes.kept_size, together = kSumColumns / columns, wide = together * columns;
  const int64_t rows = axes.summed_size / together, parts = (rows + kPartRows - 1) / kPartRows;
  std::vector<double> totals(static_cast<size_t>(parts * wide));
  in_parallel(parts, grain_rows(kPartRows * wide), [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const T* first = x + part * kPartRows * wide;
      sum_columns<T>(
          std::min(kPartRows, rows - part * kPartRows), wide, [&](int64_t r) { return first + r * wide; },
          &totals[static_cast<size_t>(part * wide)]);
    }
  });
  for (int64_t j = 0; j < columns; ++j) {
    double total = 0;
    for (int64_t i = j; i < parts * wide; i += columns) total += totals[static_cast<size_t>(i)];
    for (int64_t row = rows * together; row < axes.summed_size; ++row)
      total += static_cast<double>(widen(x[row * columns + j]));
    y[j] = narrow_double<T>(total / divisor);
  }
}

template <class T>
void sum_columns_of(const SumAxes& axes, double divisor, const T* x, T* y) {
  const int outer = axes.kept_count - 1;  // kept axes around the innermost one, a run of neighbours
  const int64_t run = axes.kept[outer].size;
  const int64_t strips = (run + kSumColumns - 1) / kSumColumns;  // of a run
  in_parallel(axes.kept_size / run * strips, grain_rows(axes.summed_size * kSumColumns),
              [&](int64_t begin, int64_t end) {
                double total[kSumColumns];
                for (int64_t strip = begin; strip < end; ++strip) {
                  const int64_t i = strip / strips, first = strip % strips * kSumColumns;
                  const T* base = x + offset_of(axes.kept, outer, i) + first;
                  const int64_t columns = std::min(kSumColumns, run - first);
                  sum_columns<T>(
                      axes.summed_size, columns,
                      [&](int64_t r) { return base + offset_of(axes.summed, axes.summed_count, r); }, total);
                  for (int64_t j = 0; j < columns; ++j)
                    y[i * run + first + j] = narrow_double<T>(total[j] / divisor);
                }
              });
}

}  // namespace

Status reduce_sum_cpu(const OpDesc& op, const LaunchContext&) {
  const SumAxes axes = sum_axes(op);
  if (axes.kept_size == 0) return Status::ok();
  const double divisor = op.attrs.get(kDivisor);
  return with_float_type(op.outputs[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = elements<T>(op.inputs[0]);
    T* y = op.outputs[0].ptr<T>();
    if (axes.inner_summed)
      return has_few_rows(axes) ? sum_few_rows<T>(axes, divisor, x, y) : sum_rows<T>(axes, divisor, x, y);
    is_long(axes) ? sum_long_columns<T>(axes, divisor, x, y) : sum_columns_of<T>(axes, divisor, x, y);
  });
}

}  // namespace aicf
