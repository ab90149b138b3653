#include "kernels/gemm/tensor_cores.cuh"

namespace aicf {

template <>
Status gemm_tc_cuda<DType::BF16>(const TiledGemm& tiled, const LaunchContext& ctx) {
  return cuda::run_16_bits<__nv_bfloat16, gemm::BF16>(tiled, ctx);
}

}  // namespace aicf
