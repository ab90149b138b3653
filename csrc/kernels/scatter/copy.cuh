// y = x in front of a scatter_add on CUDA.
#pragma once
#include "kernels/common/launch.cuh"
#include "kernels/common/numeric.cuh"

namespace aicf::cuda {

constexpr int kCopyThreads = 256;

template <class T>
__global__ void copy_kernel(T* y, const T* x, int64_t n, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kCopyThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kCopyThreads + threadIdx.x; i < n; i += step)
    y[i] = x[i];
}

// Nothing where they are the same memory.
template <class T>
Status copy(T* y, const T* x, int64_t n, const LaunchContext& ctx) {
  if (x == y) return Status::ok();
  return launch(ctx, grid_stride_blocks(n, kCopyThreads), kCopyThreads, 0, copy_kernel<T>, y, x, n,
                ctx.predicate);
}

}  // namespace aicf::cuda
