// gemm in f16, bf16 and TF32 on tensor cores.
#include "kernels/gemm/device/tensor_cores.cuh"
#include "kernels/gemm/device/tensor_panels.cuh"
#include "kernels/gemm/parts.cuh"

namespace aicf {
namespace {

using namespace cuda;

// With the first of the shapes that has the tile; one of them does.
template <class T, class Format, class Shape, class... Others>
Status run(const TiledGemm& tiled, const LaunchContext& ctx) {
  if constexpr (sizeof...(Others) > 0)
    if (tiled.division.tile.rows != Shape::BM || tiled.division.tile.columns != Shape::BN)
      return run<T, Format, Others...>(tiled, ctx);
  return launch_divided<T, Format, Shape, gemm::TensorCoreProduct>(tiled.problem, tiled.division, ctx);
}

// Those of 16x16 have a product of their own.
template <class T, class Format, class Panel, class... Shapes>
Status run_any(const TiledGemm& tiled, const LaunchContext& ctx) {
  if (tiled.division.tile.rows == Panel::BM)
    return launch_panels<T, Format, Panel, gemm::TensorPanelProduct>(tiled.problem, ctx);
  return run<T, Format, Shapes...>(tiled, ctx);
}

template <class T, class Format>
Status run_16_bits(const TiledGemm& tiled, const LaunchContext& ctx) {
  using namespace gemm;
  return run_any<T, Format, TensorPanel16, Tensor128x256, Tensor128, Tensor128x64, Tensor64, Tensor32>(tiled,
                                                                                                       ctx);
}

}  // namespace

Status gemm_tc_cuda(const TiledGemm& tiled, const LaunchContext& ctx) {
  using namespace gemm;
  switch (tiled.problem.dtype) {
    case DType::F32:
      return run_any<float, TF32, TF32TensorPanel16, TF32Tensor128x256, TF32Tensor128, TF32Tensor128x64,
                     TF32Tensor64, TF32Tensor32>(tiled, ctx);
    case DType::BF16:
      return run_16_bits<__nv_bfloat16, BF16>(tiled, ctx);
    default:
      return run_16_bits<__half, F16>(tiled, ctx);
  }
}

}  // namespace aicf
