#include "kernels/gemm/tensor_cores.cuh"

namespace aicf {

template <>
Status gemm_tc_cuda<DType::F16>(const TiledGemm& tiled, const LaunchContext& ctx) {
  return cuda::run_16_bits<__half, gemm::F16>(tiled, ctx);
}

}  // namespace aicf
