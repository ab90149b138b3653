// Mean squared error and its gradient.
#include <type_traits>

#include "kernels/common/numeric.cuh"
#include "kernels/loss/launch.h"
#include "kernels/loss/loss_parts.cuh"

namespace aicf {
namespace {

using namespace cuda;

constexpr int kGradThreads = 256;

// Block b adds the terms of part b; W as in Vec.
template <class T, int W>
__global__ void __launch_bounds__(kLossThreads)
    mse_loss_kernel(LossDestination<T> to, const T* y, const T* t, int64_t n, int64_t length) {
  dependency_wait();
  const int64_t first = blockIdx.x * length, end = first + length < n ? first + length : n;
  Compute<T> sum = 0;
#pragma unroll 4
  for (int64_t i = first + threadIdx.x * W; i < end; i += kLossThreads * W) {
    const Vec<T, W> left = *reinterpret_cast<const Vec<T, W>*>(y + i);
    const Vec<T, W> right = *reinterpret_cast<const Vec<T, W>*>(t + i);
#pragma unroll
    for (int w = 0; w < W; ++w) {
      const Compute<T> difference = widen(left.at[w]) - widen(right.at[w]);
      const Compute<T> square = difference * difference;
      if constexpr (std::is_same_v<T, __half>)
        sum += widen(narrow<T>(square));  // the sum sees what overflows, as in torch
      else
        sum += square;
    }
  }
  sum = reduce_group<Add, kLossThreads>(sum);
  if (threadIdx.x == 0) to.write(sum, end - first);
}

// dy = dloss * factor * (y - t), n vectors of W elements.
template <class T, int W>
__global__ void mse_grad_kernel(T* dy, const T* dloss, const T* y, const T* t, int64_t n, double factor) {
  dependency_wait();
  const auto scale = static_cast<Compute<T>>(factor * static_cast<double>(widen(*dloss)));
  const int64_t step = static_cast<int64_t>(gridDim.x) * kGradThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kGradThreads + threadIdx.x; i < n; i += step) {
    const Vec<T, W> left = reinterpret_cast<const Vec<T, W>*>(y)[i];
    const Vec<T, W> right = reinterpret_cast<const Vec<T, W>*>(t)[i];
    Vec<T, W> out;
#pragma unroll
    for (int w = 0; w < W; ++w) out.at[w] = narrow<T>(scale * (widen(left.at[w]) - widen(right.at[w])));
    reinterpret_cast<Vec<T, W>*>(dy)[i] = out;
  }
}

bool aligned(std::initializer_list<const void*> pointers) {
  for (const void* p : pointers)
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return false;
  return true;
}

}  // namespace

Status mse_loss_cuda(const OpDesc& op, const LaunchContext& ctx) {
  return with_float_type(op.outputs[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *y = op.in("y").ptr<const T>(), *t = op.in("t").ptr<const T>();
    const int64_t n = op.in("y").numel();
    const Split split = mse_split(n);
    const LossDestination<T> to = loss_destination<T>(op, ctx, split);
    constexpr int kWide = kWidest<T>;
    const bool wide = n % kWide == 0 && split.length % kWide == 0 && aligned({y, t});
    auto* kernel = wide ? mse_loss_kernel<T, kWide> : mse_loss_kernel<T, 1>;
    const dim3 grid(static_cast<unsigned>(split.parts));
    AICF_TRY(launch(ctx, grid, kLossThreads, 0, kernel, to, y, t, n, split.length));
    return add_loss_parts(ctx, to, split);
  });
}

Status mse_grad_cuda(const OpDesc& op, const LaunchContext& ctx) {
  const int64_t n = op.outputs[0].numel();
  if (n == 0) return Status::ok();
  const double factor = takes_mean(op) ? 2.0 / static_cast<double>(n) : 2.0;
  return with_float_type(op.outputs[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* dy = op.outputs[0].ptr<T>();
    const T *dloss = op.in("dloss").ptr<const T>(), *y = op.in("y").ptr<const T>(),
            *t = op.in("t").ptr<const T>();
    constexpr int kWide = kWidest<T>;
    const bool wide = n % kWide == 0 && aligned({dy, y, t});
    const int64_t vectors = wide ? n / kWide : n;
    auto* kernel = wide ? mse_grad_kernel<T, kWide> : mse_grad_kernel<T, 1>;
    return launch(ctx, grid_stride_blocks(vectors, kGradThreads), kGradThreads, 0, kernel, dy, dloss, y, t,
                  vectors, factor);
  });
}

}  // namespace aicf
