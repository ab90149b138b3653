// The tiles of the CUDA products: how much of the result a block of threads computes, and what of shared
// memory it needs. Numbers only, for the host too.
//
// The headers of this folder are compiled by nvcc into the prebuilt kernels and, as text, by NVRTC into
// generated ones: so they include nothing but each other.
#pragma once

namespace aicf::gemm {

// A tile of an operand in shared memory has the order that the operand has in memory: rows along k, or along
// the EXTENT, m or n. PADDING elements behind each row keep rows aligned to 16 bytes, and put the rows that
// are read together in different banks.
template <bool ALONG_K, int EXTENT, int BK, int PADDING, bool TRANSPOSED = false>
struct OperandTile {
  static constexpr int kRows = ALONG_K ? EXTENT : BK;
  static constexpr int kColumns = ALONG_K ? BK : EXTENT;
  static constexpr int kPitch = kColumns + PADDING;
  static constexpr int kElements = kRows * kPitch;
  static constexpr int kAlongExtent = ALONG_K ? kPitch : 1;  // elements from neighbour to neighbour
  static constexpr int kAlongK = ALONG_K ? 1 : kPitch;
  static constexpr int kExchanged = 0;  // see below
};
// One whose rows go along k in memory, and along the extent here: a warp writes four steps of k of kExchanged
// rows at a time. The row of step l stands kExchanged (l / 4) places from its own, by exclusive or, so that
// what is written at once lies in different banks, and fours of neighbours stay together.
template <int EXTENT, int BK, int PADDING>
struct OperandTile<true, EXTENT, BK, PADDING, true> : OperandTile<false, EXTENT, BK, 0> {
  static constexpr int kExchanged = 32 / (BK / 4);
};

// Most blocks share one tile of each operand at a time, as it lies in memory, and hand over sums as they
// stand.
struct WholeBlock {
  static constexpr int kPipelines = 1;
  static constexpr bool kTransposes = false;
  static constexpr bool kSwapped = false;
};

// Tensor cores: a block computes BM x BN, a warp WM x WN of it, STAGES tiles of BK steps of k are under way.
// BYTES are those of an element, RESIDENT the blocks of a multiprocessor, at least: what registers a thread
// has. With enough of them a warp reads the operands of its next products AHEAD, while it multiplies. The
// sums are handed over in SLICES where all of them would take more than the 99 KiB that every chip from sm_80
// on has.
template <int BM_, int BN_, int BK_, int WM_, int WN_, int STAGES_, int BYTES_, int RESIDENT_, bool AHEAD_,
          int SLICES_ = 1>
struct TensorShape : WholeBlock {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_, STAGES = STAGES_;
  static constexpr int kBytes = BYTES_;
  static constexpr int kThreads = (BM / WM) * (BN / WN) * 32;
  static constexpr int kResident = RESIDENT_;
  static constexpr bool kAhead = AHEAD_;
  static constexpr int kParts = 1;
  static constexpr int kSlices = SLICES_;
  static constexpr int kSumPitch = BN + 8;         // the pairs of sums of half a warp lie in 32 banks
  static constexpr int kSliceRows = WM / kSlices;  // of each warp
  // Elements of 16 bits are read by rows of 16 bytes, eight at a time. Of 32 bits a warp reads eight of the
  // extent by four of k at a time: the rows that it reads stand 4 banks apart, or 8 where there are four.
  template <bool ALONG_K>
  static constexpr int kPadding = kBytes == 2 || ALONG_K ? 16 / kBytes : 32 / kBytes;
};
using Tensor128x256 = TensorShape<128, 256, 32, 64, 64, 3, 2, 1, true, 2>;
using Tensor128 = TensorShape<128, 128, 32, 64, 32, 4, 2, 2, false>;
using Tensor128x64 = TensorShape<128, 64, 32, 64, 32, 4, 2, 3, true>;
using Tensor64 = TensorShape<64, 64, 32, 32, 32, 4, 2, 4, true>;
using Tensor32 = TensorShape<32, 32, 64, 16, 16, 3, 2, 4, true>;
// As many bytes of a row, so as much shared memory.
using TF32Tensor128x256 = TensorShape<128, 256, 16, 64, 64, 3, 4, 1, true, 2>;
using TF32Tensor128 = TensorShape<128, 128, 16, 64, 32, 4, 4, 2, false>;
using TF32Tensor128x64 = TensorShape<128, 64, 16, 64, 32, 4, 4, 3, true>;
using TF32Tensor64 = TensorShape<64, 64, 16, 32, 32, 4, 4, 4, true>;
using TF32Tensor32 = TensorShape<32, 32, 32, 16, 16, 3, 4, 4, true>;

// f32 in registers: a thread computes TM x TN. GROUPS > 1 divides each tile of k over groups of warps that
// keep sums of their own, added at the end from the first to the last: small results have few tiles, and one
// tile alone would leave its multiprocessor waiting. See register_groups.cuh for results of many tiles.
template <int BM_, int BN_, int BK_, int TM_, int TN_, int GROUPS_, int STAGES_>
struct RegisterShape : WholeBlock {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, TM = TM_, TN = TN_, GROUPS = GROUPS_, STAGES = STAGES_;
  static constexpr int kBytes = 4;
  static constexpr int kGroupThreads = (BM / TM) * (BN / TN);
  static constexpr int kThreads = kGroupThreads * GROUPS;
  static constexpr int kResident = 1;  // with 128 registers a thread of 8 x 4 sums spills on sm_80
  static constexpr int kGroupK = BK / GROUPS;
  static constexpr int kParts = GROUPS;
  static constexpr int kSlices = 1;
  static constexpr int kSliceRows = BM;
  static constexpr int kSumPitch = BN + 4;
  template <bool ALONG_K>
  static constexpr int kPadding = 16 / kBytes;  // eight rows that follow each other lie in different banks
  static_assert(kGroupK % 4 == 0, "a fragment holds four steps of k");
};
using Register32 = RegisterShape<32, 32, 32, 4, 4, 4, 4>;

// f32 in registers, of results of many tiles: GROUPS of warps take turns in tiles of BK steps of k, each with
// its own two places in shared memory and a barrier of its own, so that one multiplies where another waits. A
// warp computes 8 TM x 4 TN. The sums are handed over in SLICES.
template <int BM_, int BN_, int TM_, int TN_, int GROUPS_, int RESIDENT_, int SLICES_>
struct RegisterGroupShape {
  static constexpr int BM = BM_, BN = BN_, BK = 16, TM = TM_, TN = TN_, GROUPS = GROUPS_, STAGES = 2;
  static constexpr int kBytes = 4;
  static constexpr int kGroupThreads = (BM / TM) * (BN / TN);
  static constexpr int kThreads = kGroupThreads * GROUPS;
  static constexpr int kResident = RESIDENT_;
  static constexpr int kParts = GROUPS;
  static constexpr int kPipelines = GROUPS;
  static constexpr bool kTransposes = true;
  static constexpr bool kSwapped = true;  // the columns of each pair
  static constexpr int kSlices = SLICES_;
  static constexpr int kSliceRows = BM / SLICES_;
  static constexpr int kSumPitch = BN + 4;
  template <bool ALONG_K>
  static constexpr int kPadding = 0;
  static_assert(BM % (8 * TM) == 0 && BN % (4 * TN) == 0, "a warp has 8 x 4 threads");
  static_assert(TM % (4 * SLICES_) == 0, "a thread has as many fours of rows in every slice");
};
using RegisterGroup128x64 = RegisterGroupShape<128, 64, 8, 8, 3, 1, 2>;
using RegisterGroup64 = RegisterGroupShape<64, 64, 8, 8, 4, 1, 1>;
using RegisterGroup64x32 = RegisterGroupShape<64, 32, 8, 4, 4, 2, 1>;

// One thread for each element.
struct ElementShape {
  static constexpr int BM = 16, BN = 16;
  static constexpr int kThreads = BM * BN;
  static constexpr int kResident = 1024 / kThreads;  // they wait for memory: more of them
};
using Element16 = ElementShape;

// What a block has in shared memory: the stages of both operands, and later the sums with a number a thread.
template <class Shape, bool TRANS_A, bool TRANS_B>
struct SharedMemory {
  template <bool ALONG_K, int EXTENT>
  using Tile = OperandTile<ALONG_K, EXTENT, Shape::BK, Shape::template kPadding<ALONG_K>, Shape::kTransposes>;
  using A = Tile<!TRANS_A, Shape::BM>;
  using B = Tile<TRANS_B, Shape::BN>;
  static constexpr int kStage = A::kElements + B::kElements;  // elements
  static constexpr int kPipeline = Shape::STAGES * kStage;
  static constexpr int kStages = Shape::kPipelines * kPipeline * Shape::kBytes;
  static constexpr int kSums =
      (Shape::kParts * (Shape::BM / Shape::kSlices) * Shape::kSumPitch + Shape::kThreads) * 4;
  static constexpr int kBytes = kStages > kSums ? kStages : kSums;
};
template <bool TRANS_A, bool TRANS_B>
struct SharedMemory<ElementShape, TRANS_A, TRANS_B> {
  static constexpr int kBytes = 0;
};

}  // namespace aicf::gemm
