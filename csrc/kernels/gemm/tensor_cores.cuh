// gemm on tensor cores: which of the shapes runs a product. One file for each format instantiates it, since
// each takes the compiler a minute.
#pragma once
#include "kernels/gemm/device/tensor_cores.cuh"
#include "kernels/gemm/device/tensor_panels.cuh"
#include "kernels/gemm/split_k.cuh"

namespace aicf::cuda {

// With the first of the shapes that has the tile; one of them does.
template <class T, class Format, class Shape, class... Others>
Status run_shape(const TiledGemm& tiled, const LaunchContext& ctx) {
  if constexpr (sizeof...(Others) > 0)
    if (tiled.division.tile.rows != Shape::BM || tiled.division.tile.columns != Shape::BN)
      return run_shape<T, Format, Others...>(tiled, ctx);
  return launch_split_k<T, Format, Shape, gemm::TensorCoreProduct>(tiled.problem, tiled.division, ctx);
}

// Those of 16x16 have a product of their own.
template <class T, class Format, class Panel, class... Shapes>
Status run_tensor_cores(const TiledGemm& tiled, const LaunchContext& ctx) {
  if (tiled.division.tile.rows == Panel::BM)
    return launch_panels<T, Format, Panel, gemm::TensorPanelProduct>(tiled.problem, ctx);
  return run_shape<T, Format, Shapes...>(tiled, ctx);
}

template <class T, class Format>
Status run_16_bits(const TiledGemm& tiled, const LaunchContext& ctx) {
  using namespace gemm;
  return run_tensor_cores<T, Format, TensorPanel16, Tensor128x256, Tensor128, Tensor128x64, Tensor64,
                          Tensor32>(tiled, ctx);
}

}  // namespace aicf::cuda
