// gemm in f16 and bf16 on tensor cores.
#include "kernels/gemm/device/tensor_cores.cuh"
#include "kernels/gemm/prebuilt.cuh"

namespace aicf {
namespace {

using namespace cuda;

template <class T, class Format>
Status run(const TiledGemm& tiled, const LaunchContext& ctx) {
  switch (tiled.side) {
    case 128:
      return launch_widest<T, Format, gemm::Tensor128, gemm::TensorCoreProduct>(tiled.problem, ctx);
    case 64:
      return launch_widest<T, Format, gemm::Tensor64, gemm::TensorCoreProduct>(tiled.problem, ctx);
    default:
      return launch_widest<T, Format, gemm::Tensor32, gemm::TensorCoreProduct>(tiled.problem, ctx);
  }
}

}  // namespace

Status gemm_tc_cuda(const TiledGemm& tiled, const LaunchContext& ctx) {
  return tiled.problem.dtype == DType::BF16 ? run<__nv_bfloat16, gemm::BF16>(tiled, ctx)
                                            : run<__half, gemm::F16>(tiled, ctx);
}

}  // namespace aicf
