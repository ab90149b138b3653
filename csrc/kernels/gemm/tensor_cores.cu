// gemm in f16, bf16 and TF32 on tensor cores.
#include "kernels/gemm/device/tensor_cores.cuh"
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

template <class T, class Format>
Status run_16_bits(const TiledGemm& tiled, const LaunchContext& ctx) {
  using namespace gemm;
  return run<T, Format, Tensor128x256, Tensor128, Tensor128x64, Tensor64, Tensor32, Tensor16>(tiled, ctx);
}

}  // namespace

Status gemm_tc_cuda(const TiledGemm& tiled, const LaunchContext& ctx) {
  using namespace gemm;
  switch (tiled.problem.dtype) {
    case DType::F32:
      return run<float, TF32, TF32Tensor128x256, TF32Tensor128, TF32Tensor128x64, TF32Tensor64, TF32Tensor32,
                 TF32Tensor16>(tiled, ctx);
    case DType::BF16:
      return run_16_bits<__nv_bfloat16, BF16>(tiled, ctx);
    default:
      return run_16_bits<__half, F16>(tiled, ctx);
  }
}

}  // namespace aicf
