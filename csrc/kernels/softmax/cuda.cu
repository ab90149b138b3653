// Softmax on CUDA: a warp a row, or a block where rows are long.
#include "kernels/common/row_groups.cuh"
#include "kernels/softmax/launch.h"

namespace aicf {
namespace {

using namespace cuda;

template <class T, int THREADS>
__global__ void __launch_bounds__(kRowThreads) softmax_kernel(T* y, const T* x, int64_t rows, int64_t n) {
  dependency_wait();
  for_each_row<THREADS>(rows, [&](int64_t row) {
    const T* from = x + row * n;
    const RowExponentials<Compute<T>> terms = row_exponentials<THREADS>(from, n);
    for_each_element<THREADS>(n, [&](int64_t i) { y[row * n + i] = narrow<T>(terms(from[i]) / terms.sum); });
  });
}

template <class T, int THREADS>
__global__ void __launch_bounds__(kRowThreads)
    softmax_grad_kernel(T* dx, const T* dy, const T* y, int64_t rows, int64_t n) {
  dependency_wait();
  using C = Compute<T>;
  for_each_row<THREADS>(rows, [&](int64_t row) {
    const T *slope = dy + row * n, *saved = y + row * n;
    const C dot = sum_of_row<THREADS, C>(n, [&](int64_t i) { return widen(slope[i]) * widen(saved[i]); });
    for_each_element<THREADS>(
        n, [&](int64_t i) { dx[row * n + i] = narrow<T>(widen(saved[i]) * (widen(slope[i]) - dot)); });
  });
}

}  // namespace

Status softmax_cuda(const OpDesc& op, const LaunchContext& ctx) {
  const int64_t n = row_length(op.outputs[0]), rows = op.outputs[0].numel() / std::max<int64_t>(n, 1);
  return with_float_type(op.outputs[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return launch_rows(ctx, rows, n, softmax_kernel<T, kWarp>, softmax_kernel<T, kRowThreads>,
                       op.outputs[0].ptr<T>(), op.in("x").ptr<const T>(), rows, n);
  });
}

Status softmax_grad_cuda(const OpDesc& op, const LaunchContext& ctx) {
  const int64_t n = row_length(op.outputs[0]), rows = op.outputs[0].numel() / std::max<int64_t>(n, 1);
  return with_float_type(op.outputs[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return launch_rows(ctx, rows, n, softmax_grad_kernel<T, kWarp>, softmax_grad_kernel<T, kRowThreads>,
                       op.outputs[0].ptr<T>(), op.in("dy").ptr<const T>(), op.in("saved").ptr<const T>(),
                       rows, n);
  });
}

}  // namespace aicf
