// The product in f32 for results of many tiles, by Shape::GROUPS groups of threads that share a tile's k.
#pragma once
#include "kernels/gemm/device/group_operands.cuh"
#include "kernels/gemm/device/tiles.cuh"

namespace aicf::gemm {

// What bounds it are instructions, one a cycle for each quarter of a multiprocessor, and registers: of two
// banks, odd and even ones, each gives one operand a cycle. So rows of sums are walked to and fro: with the
// element of a kept from the instruction before, or that of b where the walk turns, each instruction reads
// one operand and its sum. Pairs of sums are written the wrong way round, for then the compiler puts each
// into the other bank than the operand, whose place is that of a read of four; else one in four takes a cycle
// more.
//
// As TensorCoreProduct; Format is F32, WZ at most 4.
template <class Format, class Shape, bool TRANS_A, bool TRANS_B, int WA, int WB, int WZ>
struct RegisterGroupProduct {
  using Shared = SharedMemory<Shape, TRANS_A, TRANS_B>;
  using TileA = typename Shared::A;
  using TileB = typename Shared::B;
  using OperandA = GroupOperand<TileA, !TRANS_A, Shape::BM, Shape::BK, Shape::kGroupThreads, WA>;
  using OperandB = GroupOperand<TileB, TRANS_B, Shape::BN, Shape::BK, Shape::kGroupThreads, WB>;
  using FragmentA = GroupFragment<TileA, Shape::BM, Shape::TM>;
  using FragmentB = GroupFragment<TileB, Shape::BN, Shape::TN>;
  static constexpr int BK = Shape::BK, TM = Shape::TM, TN = Shape::TN;
  static constexpr int kStageBytes = Shared::kStage * 4, kTurn = Shape::GROUPS * BK;
  static_assert(Shape::STAGES == 2, "one tile is multiplied, one comes");

  // The step in front of which a piece of those that come through registers is written: late in a tile, since
  // they are read at the end of the one before.
  static __device__ __forceinline__ constexpr int written(int piece) {
    constexpr int kCount = OperandA::kPieces + OperandB::kPieces;
    return BK - 2 - (kCount - 1 - piece) * (BK - 6) / kCount;
  }

  static __device__ __forceinline__ void multiply(float (&sums)[TM][TN], const float (&x)[TM],
                                                  const float (&y)[TN]) {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int turn = 0; turn < TN; ++turn) {
        const int j = i % 2 == 0 ? turn : TN - 1 - turn;
        sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
      }
  }

  template <class Epilogue, class Totals>
  static __device__ __forceinline__ void run(const Problem& p, const void* a, const void* b,
                                             const Epilogue& epilogue, const Totals& totals,
                                             unsigned char* shared) {
    float* memory = reinterpret_cast<float*>(shared);  // the stages, and later the sums
    const int group = threadIdx.x / Shape::kGroupThreads, own = threadIdx.x % Shape::kGroupThreads;
    // By turns of two along m and n: half a warp reads so few different words that they come at once.
    const int warp = own / 32, lane = own % 32, warps_n = Shape::BN / TN / 4;
    const int thread_m = warp / warps_n * 8 + (lane / 2 % 2 + lane / 8 % 2 * 2 + lane / 16 * 4);
    const int thread_n = warp % warps_n * 4 + (lane % 2 + lane / 4 % 2 * 2);
    const Tiles<Shape::BM, Shape::BN> tiles(p);
    float* pipeline = memory + group * Shared::kPipeline;
    const SharedAddress tile_a = shared_address(pipeline), tile_b = tile_a + TileA::kElements * 4;
    const SharedAddress first_a = kept(tile_a + 4 * FragmentA::position(thread_m, 0)),
                        first_b = kept(tile_b + 4 * FragmentB::position(thread_n, 0));

    for (long long index = blockIdx.x; index < tiles.count; index += gridDim.x) {
      const auto place = tiles.place(p, index);
      const bool adds_rows = totals.wanted() && place.column == 0;
      OperandA from_a(own, a, p.a.start(place.member), place.row, p.m, p.a.leading, group * BK, tile_a);
      OperandB from_b(own, b, p.b.start(place.member), place.column, p.n, p.b.leading, group * BK, tile_b);
      const bool inside = from_a.inside() && from_b.inside();
      long long left = p.depth(place.member) - group * BK;  // steps of k from this group's tile on
      // Starts with the next tile of those operands that come through registers, or of the others.
      const auto start = [&](bool through_registers, int stage, long long there) {
        const bool with_a = OperandA::kThroughRegisters == through_registers,
                   with_b = OperandB::kThroughRegisters == through_registers;
        if (inside && there >= BK) {
          if (with_a) from_a.start_whole(stage);
          if (with_b) from_b.start_whole(stage);
        } else if (there > 0) {
          if (with_a) from_a.start_part(stage, there);
          if (with_b) from_b.start_part(stage, there);
        }
        if (with_a) from_a.advance(kTurn);
        if (with_b) from_b.advance(kTurn);
      };
      const auto write = [&](int step, int stage) {  // all pieces where `step` is negative
#pragma unroll
        for (int piece = 0; piece < OperandA::kPieces; ++piece)
          if (OperandA::kThroughRegisters && (step < 0 || written(piece) == step)) from_a.write(piece, stage);
#pragma unroll
        for (int piece = 0; piece < OperandB::kPieces; ++piece)
          if (OperandB::kThroughRegisters && (step < 0 || written(OperandA::kPieces + piece) == step))
            from_b.write(piece, stage);
      };
      const auto wait = [&] {
        wait_copies<0>();
        sync_group<Shape::kGroupThreads>(group);
      };
      start(true, 0, left);
      start(false, 0, left);
      commit_copies();
      write(-1, 0);
      start(true, 0, left - kTurn);
      // Behind the first tiles, which do not wait for it.
      constexpr bool kStages = StagedBytes<Epilogue>::kBytes > 0;
      const StagedTile<Shape, WZ, decltype(place), Epilogue> staged{place, epilogue, shared + Shared::kBytes};
      if constexpr (kStages) {
        staged.start(p);
        commit_copies();
      }
      float sums[TM][TN] = {}, x[2][TM], y[2][TN];
      RowTotals<Format, Shape, TRANS_A> rows;
      wait_copies<kStages ? 1 : 0>();
      sync_group<Shape::kGroupThreads>(group);
      FragmentB::read(y[0], first_b, 0);
      FragmentA::read(x[0], first_a, 0);
#pragma unroll 1
      for (int stage = 0; left > 0; left -= kTurn, stage ^= kStageBytes) {
        const int next = stage ^ kStageBytes;
        start(false, next, left - kTurn);
        commit_copies();
        if (adds_rows) rows.add(pipeline + stage / 4);
#pragma unroll
        for (int step = 0; step < BK; ++step) {
          write(step, next);
          const bool last = step == BK - 1;
          if (last) {
            wait();
            start(true, next, left - 2 * kTurn);
          }
          // The first ones of the next tile, if there is one, or what stands in its place.
          FragmentB::read(y[(step + 1) % 2], first_b + (last ? next : stage), last ? 0 : step + 1);
          FragmentA::read(x[(step + 1) % 2], first_a + (last ? next : stage), last ? 0 : step + 1);
          multiply(sums, x[step % 2], y[step % 2]);
        }
      }
      // With a tile less than the first group, meet as often as that. The code needs it not, racecheck does:
      // behind barriers that some warps have passed more often than others it reports races across
      // __syncthreads.
      if (left + group * BK > 0) sync_group<Shape::kGroupThreads>(group);
      if constexpr (kStages) wait_copies<0>();

#pragma unroll 1
      for (int slice = 0; slice < Shape::kSlices; ++slice) {
        __syncthreads();  // the stages, or the last slice, become the sums
        constexpr int kRows = Shape::BM / Shape::kSlices;
        float* part = memory + (group - slice) * kRows * Shape::kSumPitch;
#pragma unroll
        for (int i = 0; i < TM; ++i) {
          if (i * Shape::kSlices / TM != slice) continue;
          float* row = part + FragmentA::position(thread_m, i) * Shape::kSumPitch;
#pragma unroll
          for (int j = 0; j < TN; j += 4)
            *reinterpret_cast<float4*>(row + FragmentB::position(thread_n, j)) =
                make_float4(sums[i][j + 1], sums[i][j], sums[i][j + 3], sums[i][j + 2]);
        }
        __syncthreads();
        if constexpr (kStages)
          finish_tile<Shape, WZ>(p, memory, place, slice, staged);
        else
          finish_tile<Shape, WZ>(p, memory, place, slice, epilogue);
      }
      if (adds_rows) rows.finish(p, memory, place, totals);
      __syncthreads();  // before the next tile overwrites the sums
    }
  }
};

}  // namespace aicf::gemm
