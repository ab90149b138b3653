// gemm in f32 through shared memory and registers, of smaller results.
#include "kernels/gemm/device/register_panels.cuh"
#include "kernels/gemm/prebuilt.cuh"

namespace aicf {

Status gemm_tiled_32x32_cuda(const GemmProblem& p, const LaunchContext& ctx) {
  return cuda::launch_widest<float, gemm::F32, gemm::Register32, gemm::RegisterProduct>(p, ctx);
}

Status gemm_tiled_16x16_cuda(const GemmProblem& p, const LaunchContext& ctx) {
  return cuda::launch_panels<float, gemm::F32, gemm::RegisterPanel16, gemm::RegisterPanelProduct>(p, ctx);
}

}  // namespace aicf
