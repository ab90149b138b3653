// gemm with one thread per element of the result: the reference of the others, and the only one for f64.
#include "kernels/gemm/device/elements.cuh"
#include "kernels/gemm/prebuilt.cuh"

namespace aicf {

Status gemm_naive_cuda(const GemmProblem& p, const LaunchContext& ctx) {
  if (p.dtype == DType::F64)
    return cuda::launch_product<double, gemm::F64, gemm::Element16, 1, gemm::ElementProduct>(p, ctx);
  return cuda::launch_product<float, gemm::F32, gemm::Element16, 1, gemm::ElementProduct>(p, ctx);
}

}  // namespace aicf
