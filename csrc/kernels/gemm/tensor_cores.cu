// gemm in f16, bf16 and TF32 on tensor cores.
#include "kernels/gemm/device/tensor_cores.cuh"
#include "kernels/gemm/prebuilt.cuh"

namespace aicf {
namespace {

using namespace cuda;

template <class T, class Format, class Large, class Medium, class Small>
Status run(const TiledGemm& tiled, const LaunchContext& ctx) {
  switch (tiled.side) {
    case 128:
      return launch_widest<T, Format, Large, gemm::TensorCoreProduct>(tiled.problem, ctx);
    case 64:
      return launch_widest<T, Format, Medium, gemm::TensorCoreProduct>(tiled.problem, ctx);
    default:
      return launch_widest<T, Format, Small, gemm::TensorCoreProduct>(tiled.problem, ctx);
  }
}

}  // namespace

Status gemm_tc_cuda(const TiledGemm& tiled, const LaunchContext& ctx) {
  using namespace gemm;
  switch (tiled.problem.dtype) {
    case DType::F32:
      return run<float, TF32, TF32Tensor128, TF32Tensor64, TF32Tensor32>(tiled, ctx);
    case DType::BF16:
      return run<__nv_bfloat16, BF16, Tensor128, Tensor64, Tensor32>(tiled, ctx);
    default:
      return run<__half, F16, Tensor128, Tensor64, Tensor32>(tiled, ctx);
  }
}

}  // namespace aicf
