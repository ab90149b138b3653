// The plain convolution on CUDA: each element of the result is a thread's loop.
#include "kernels/common/launch.cuh"
#include "kernels/common/numeric.cuh"
#include "kernels/convolution/launch.h"

namespace aicf {
namespace {

using namespace cuda;

template <class T>
struct Widened {
  __device__ Compute<T> operator()(T value) const { return widen(value); }
};

template <class T>
__global__ void convolution_kernel(const __grid_constant__ Convolution c, T* out, int64_t count) {
  dependency_wait();
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
    out[i] = narrow<T>(element_of_result<Compute<T>, T>(c, i, Widened<T>{}));
}

template <class T>
__global__ void epilogue_kernel(const __grid_constant__ Convolution c, T* y, int64_t count) {
  dependency_wait();
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
    y[i] = narrow<T>(with_epilogue<Compute<T>, T>(c, i, widen(y[i]), Widened<T>{}));
}

// `with_kernel` is called with a value of the element type, and says which kernel.
template <class WithKernel>
Status launch_each(const Convolution& c, const LaunchContext& ctx, WithKernel with_kernel) {
  constexpr int kThreads = 256;
  const int64_t count = c.result_count();
  if (count == 0) return Status::ok();
  return with_float_type(c.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return launch(ctx, grid_stride_blocks(count, kThreads), kThreads, 0, with_kernel(tag), c,
                  static_cast<T*>(c.result()), count);
  });
}

}  // namespace

Status convolution_cuda(const Convolution& c, const LaunchContext& ctx) {
  return launch_each(c, ctx, [](auto tag) { return convolution_kernel<typename decltype(tag)::type>; });
}

Status convolution_epilogue_cuda(const Convolution& c, const LaunchContext& ctx) {
  return launch_each(c, ctx, [](auto tag) { return epilogue_kernel<typename decltype(tag)::type>; });
}

}  // namespace aicf
