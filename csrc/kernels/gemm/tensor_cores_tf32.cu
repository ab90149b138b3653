#include "kernels/gemm/tensor_cores.cuh"

namespace aicf {

template <>
Status gemm_tc_cuda<DType::F32>(const TiledGemm& tiled, const LaunchContext& ctx) {
  using namespace gemm;
  return cuda::run_tensor_cores<float, TF32, TF32TensorPanel16, TF32Tensor128x256, TF32Tensor128,
                                TF32Tensor128x64, TF32Tensor64, TF32Tensor32>(tiled, ctx);
}

}  // namespace aicf
