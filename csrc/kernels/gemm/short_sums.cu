// gemm in f32 of few terms.
#include "kernels/gemm/device/instructions.cuh"
#include "kernels/gemm/device/short_sums.cuh"
#include "kernels/gemm/prebuilt.cuh"

namespace aicf {

Status gemm_short_sums_cuda(const GemmProblem& p, const LaunchContext& ctx) {
  using cuda::launch_product, gemm::F32, gemm::ShortSums, gemm::ShortSumsProduct;
  return cuda::results_are_aligned<float>(p)
             ? launch_product<float, F32, ShortSums, 1, ShortSumsProduct, 4>(p, ctx)
             : launch_product<float, F32, ShortSums, 1, ShortSumsProduct>(p, ctx);
}

}  // namespace aicf
