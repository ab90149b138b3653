// The product for small results in f16, bf16 and TF32: the warps of a block take turns in steps of k.
#pragma once
#include "kernels/gemm/device/panels.cuh"
#include "kernels/gemm/device/tensor_cores.cuh"

namespace aicf::gemm {

// Those of a warp, 16 x 16: it takes every kParts-th step of Format::kStep.
template <class Format, class Shape, bool TRANS_A, bool TRANS_B>
struct TensorPanelSums {
  using T = typename Format::Element;
  using A = typename SharedMemory<Shape, TRANS_A, TRANS_B>::A;
  using B = typename SharedMemory<Shape, TRANS_A, TRANS_B>::B;
  static constexpr int kAcross = Shape::BN / kBlock, kBlocks = Shape::BM / kBlock * kAcross;
  static constexpr int kTurns = Shape::BK / (Format::kStep * Shape::kParts);
  static_assert(Shape::kParts * kBlocks == Shape::kWarps && Shape::kSteps == Format::kStep, "one block");

  float sums[2][4] = {};

  __device__ __forceinline__ static int warp() { return static_cast<int>(threadIdx.x / 32); }
  __device__ __forceinline__ static int first_row() { return warp() % kBlocks / kAcross * kBlock; }
  __device__ __forceinline__ static int first_column() { return warp() % kAcross * kBlock; }
  __device__ __forceinline__ static int step(int turn) {
    return (turn * Shape::kParts + warp() / kBlocks) * Format::kStep;
  }

  __device__ __forceinline__ void add(const T* panel, int length) {
    unsigned x[kTurns][4], y[kTurns][2][2];
    const T* a = panel + first_row() * A::kAlongExtent;
    const T* b = panel + A::kElements + first_column() * B::kAlongExtent;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {  // all of them, before the first product waits for one
      if (step(turn) >= length) continue;
      read_a<A, !TRANS_A>(x[turn], a + step(turn) * A::kAlongK);
      read_b<B, TRANS_B>(y[turn], b + step(turn) * B::kAlongK);
    }
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (step(turn) >= length) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) Format::multiply(sums[half], x[turn], y[turn][half]);
    }
  }

  __device__ __forceinline__ void write(float* out) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int row = warp() / kBlocks * Shape::BM + first_row() + lane / 4;
    float* first = out + row * Shape::kSumPitch + first_column() + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float* at = first + half * 8;
      *reinterpret_cast<float2*>(at) = make_float2(sums[half][0], sums[half][1]);
      *reinterpret_cast<float2*>(at + 8 * Shape::kSumPitch) = make_float2(sums[half][2], sums[half][3]);
    }
  }
};

// As TensorCoreProduct.
template <class Format, class Shape, bool TRANS_A, bool TRANS_B, int WA, int WB, int WZ>
struct TensorPanelProduct : PanelProduct<TensorPanelSums<Format, Shape, TRANS_A, TRANS_B>, Format, Shape,
                                         TRANS_A, TRANS_B, WA, WB, WZ> {};

}  // namespace aicf::gemm
