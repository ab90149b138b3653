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

}  // namespace

Status convolution_cuda(const Convolution& c, const LaunchContext& ctx) {
  constexpr int kThreads = 256;
  const int64_t count = c.result_count();
  if (count == 0) return Status::ok();
  return with_float_type(c.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return launch(ctx, grid_stride_blocks(count, kThreads), kThreads, 0, convolution_kernel<T>, c,
                  static_cast<T*>(c.result()), count);
  });
}

}  // namespace aicf
