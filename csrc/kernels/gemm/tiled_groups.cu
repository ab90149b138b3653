// gemm in f32 through shared memory and registers, of larger results.
#include "kernels/gemm/device/register_groups.cuh"
#include "kernels/gemm/prebuilt.cuh"

namespace aicf {

Status gemm_tiled_128x64_cuda(const GemmProblem& p, const LaunchContext& ctx) {
  return cuda::launch_widest<float, gemm::F32, gemm::RegisterGroup128x64, gemm::RegisterGroupProduct>(p, ctx);
}

Status gemm_tiled_64x64_cuda(const GemmProblem& p, const LaunchContext& ctx) {
  return cuda::launch_widest<float, gemm::F32, gemm::RegisterGroup64, gemm::RegisterGroupProduct>(p, ctx);
}

Status gemm_tiled_64x32_cuda(const GemmProblem& p, const LaunchContext& ctx) {
  return cuda::launch_widest<float, gemm::F32, gemm::RegisterGroup64x32, gemm::RegisterGroupProduct>(p, ctx);
}

}  // namespace aicf
