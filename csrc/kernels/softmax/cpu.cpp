// Softmax on the CPU, row by row. Terms in the compute type, their sum in double; each result is rounded
// once.
#include "kernels/common/cpu_rows.h"
#include "kernels/softmax/launch.h"

namespace aicf {

using namespace cpu;

Status softmax_cpu(const OpDesc& op, const LaunchContext&) {
  const int64_t n = row_length(op.outputs[0]), numel = op.outputs[0].numel();
  return with_float_type(op.outputs[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = elements<T>(op.in("x"));
    T* y = op.outputs[0].ptr<T>();
    for (const T* end = x + numel; x != end; x += n, y += n) {
      const RowExponentials<T> row(x, n);
      const auto sum = static_cast<Compute<T>>(row.sum);
      for (int64_t i = 0; i < n; ++i) y[i] = narrow<T>(row(x[i]) / sum);
    }
  });
}

Status softmax_grad_cpu(const OpDesc& op, const LaunchContext&) {
  const int64_t n = row_length(op.outputs[0]), numel = op.outputs[0].numel();
  return with_float_type(op.outputs[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    const T *dy = elements<T>(op.in("dy")), *y = elements<T>(op.in("saved"));
    T* dx = op.outputs[0].ptr<T>();
    for (const T* end = y + numel; y != end; dy += n, y += n, dx += n) {
      const C dot = static_cast<C>(sum_terms<C>(n, [=](int64_t i) { return widen(dy[i]) * widen(y[i]); }));
      for (int64_t i = 0; i < n; ++i) dx[i] = narrow<T>(widen(y[i]) * (widen(dy[i]) - dot));
    }
  });
}

}  // namespace aicf
