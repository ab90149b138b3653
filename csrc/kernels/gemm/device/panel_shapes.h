// The tiles of small results: a block computes few elements, and all its threads share each of them along k.
#pragma once
#include "kernels/gemm/device/shapes.h"

namespace aicf::gemm {

// A panel is what a block reads of both operands at once: BM rows of op(a) and BN columns of op(b), BK steps
// of k. STAGES of them are under way together, so that k up to STAGES * BK costs one wait for memory. An
// epilogue gets a word of neighbours, or what is a thread's share: each of the many threads does a little.
template <int BM_, int BN_, int BK_, int BYTES_>
struct PanelShape : WholeBlock {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, STAGES = 2;
  static constexpr int kBytes = BYTES_;
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kResident = 2;
  static constexpr int kParts = kWarps;  // each warp has a sum of every element
  static constexpr int kSlices = 1, kSliceRows = BM;
  static constexpr int kShare = BM * BN / kThreads;
  static constexpr int kNeighbours = kShare > 4 / kBytes ? kShare : 4 / kBytes;
};

// Tensor cores: the warps that have the same 16 x 16 elements take turns in steps of k, 32 bytes of a row
// each.
template <int BN, int BK, int BYTES>
struct TensorPanelShape : PanelShape<16, BN, BK, BYTES> {
  static constexpr int kParts = TensorPanelShape::kWarps / (BN / 16);
  static constexpr int kSumPitch = BN + 8;
  static constexpr int kSteps = 32 / BYTES;  // of k at once; Format::kStep
  template <bool ALONG_K>
  static constexpr int kPadding = BYTES == 2 || ALONG_K ? 16 / BYTES : 32 / BYTES;  // as TensorShape
};
using TensorPanel16 = TensorPanelShape<16, 256, 2>;
using TF32TensorPanel16 = TensorPanelShape<16, 128, 4>;
// For short sums: rows of b that lie along n are read twice as long, and so is what the epilogue reads.
using TensorPanel16x32 = TensorPanelShape<32, 64, 2>;
using TF32TensorPanel16x32 = TensorPanelShape<32, 64, 4>;

// f32 in registers: groups of threads that hold TM x TN sums each take turns in fours of k. Those of a warp
// read neighbouring fours, from different banks.
template <int BM, int BN, int BK, int TM_, int TN_>
struct RegisterPanelShape : PanelShape<BM, BN, BK, 4> {
  static constexpr int TM = TM_, TN = TN_;
  static constexpr int kGroupThreads = (BM / TM) * (BN / TN);
  static constexpr int kGroups = RegisterPanelShape::kThreads / kGroupThreads;
  static constexpr int kSumPitch = BN + 4;
  static constexpr int kSteps = 4;
  template <bool ALONG_K>
  static constexpr int kPadding = ALONG_K ? 8 : 4;
  static_assert(kGroupThreads <= 32 && TM % (32 / kGroupThreads) == 0, "the groups of a warp share its rows");
};
using RegisterPanel16 = RegisterPanelShape<16, 16, 128, 4, 4>;
using RegisterPanel16x8 = RegisterPanelShape<16, 8, 128, 4, 4>;   // for few tiles of 16
using RegisterPanel16x32 = RegisterPanelShape<16, 32, 64, 4, 4>;  // for short sums, as above

}  // namespace aicf::gemm
