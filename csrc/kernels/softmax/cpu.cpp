// Softmax on the CPU, row by row. Terms in the compute type, their sum in double; each result is rounded
// once.
#include "kernels/common/cpu_parallel.h"
#include "kernels/common/cpu_rows.h"
#include "kernels/softmax/launch.h"

namespace aicf {

using namespace cpu;

Status softmax_cpu(const OpDesc& op, const LaunchContext&) {
  const int64_t n = row_length(op.outputs[0]), numel = op.outputs[0].numel();
  return with_float_type(op.outputs[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* first = elements<T>(op.in("x"));
    T* result = op.outputs[0].ptr<T>();
    in_parallel(numel / std::max<int64_t>(n, 1), grain_rows(n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* x = first + r * n;
        T* y = result + r * n;
        const RowExponentials<T> row(x, n);
        const auto sum = static_cast<Compute<T>>(row.sum);
        for (int64_t i = 0; i < n; ++i) y[i] = narrow<T>(row(x[i]) / sum);
      }
    });
  });
}

Status softmax_grad_cpu(const OpDesc& op, const LaunchContext&) {
  const int64_t n = row_length(op.outputs[0]), numel = op.outputs[0].numel();
  return with_float_type(op.outputs[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    const T *gradients = elements<T>(op.in("dy")), *saved = elements<T>(op.in("saved"));
    T* result = op.outputs[0].ptr<T>();
    in_parallel(numel / std::max<int64_t>(n, 1), grain_rows(n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T *dy = gradients + r * n, *y = saved + r * n;
        T* dx = result + r * n;
        const C dot = static_cast<C>(sum_terms<C>(n, [=](int64_t i) { return widen(dy[i]) * widen(y[i]); }));
        for (int64_t i = 0; i < n; ++i) dx[i] = narrow<T>(widen(y[i]) * (widen(dy[i]) - dot));
      }
    });
  });
}

}  // namespace aicf
