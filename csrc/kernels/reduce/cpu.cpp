// reduce_sum on the CPU: along rows when x's fastest axis is summed, else along columns, many columns at a
// time.
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
    axes.inner_summed ? sum_rows<T>(axes, divisor, x, y) : sum_columns_of<T>(axes, divisor, x, y);
  });
}

}  // namespace aicf
