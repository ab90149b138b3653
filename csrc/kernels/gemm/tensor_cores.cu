// gemm in f16, bf16 and TF32 on tensor cores.
#include "kernels/gemm/device/tensor_cores.cuh"
#include "kernels/gemm/prebuilt.cuh"

namespace aicf {
namespace {

using namespace cuda;

template <class T, class Format, class Side128, class Side64, class Side32, class Side16>
Status run(const TiledGemm& tiled, const LaunchContext& ctx) {
  switch (tiled.side) {
    case 128:
      return launch_widest<T, Format, Side128, gemm::TensorCoreProduct>(tiled.problem, ctx);
    case 64:
      return launch_widest<T, Format, Side64, gemm::TensorCoreProduct>(tiled.problem, ctx);
    case 32:
      return launch_widest<T, Format, Side32, gemm::TensorCoreProduct>(tiled.problem, ctx);
    default:
      return launch_widest<T, Format, Side16, gemm::TensorCoreProduct>(tiled.problem, ctx);
  }
}

}  // namespace

Status gemm_tc_cuda(const TiledGemm& tiled, const LaunchContext& ctx) {
  using namespace gemm;
  switch (tiled.problem.dtype) {
    case DType::F32:
      return run<float, TF32, TF32Tensor128, TF32Tensor64, TF32Tensor32, TF32Tensor16>(tiled, ctx);
    case DType::BF16:
      return run<__nv_bfloat16, BF16, Tensor128, Tensor64, Tensor32, Tensor16>(tiled, ctx);
    default:
      return run<__half, F16, Tensor128, Tensor64, Tensor32, Tensor16>(tiled, ctx);
  }
}

}  // namespace aicf
