// The product in f32: a thread multiplies Shape::TM x Shape::TN elements in registers.
#pragma once
#include "kernels/gemm/device/tiles.cuh"

namespace aicf::gemm {

// The COUNT elements of an operand's tile that one thread multiplies, for four steps of k. EXTENT is BM or
// BN.
template <class Tile, bool ALONG_K, int EXTENT, int COUNT>
struct Fragment;

// Rows along k: elements as far apart as there are threads, so that neighbouring threads read neighbouring
// rows (no bank conflicts).
template <class Tile, int EXTENT, int COUNT>
struct Fragment<Tile, true, EXTENT, COUNT> {
  static constexpr int kThreads = EXTENT / COUNT;
  static __device__ __forceinline__ int position(int thread, int j) { return thread + j * kThreads; }
  static __device__ __forceinline__ void read(float (&out)[4][COUNT], const float* tile, int k, int thread) {
#pragma unroll
    for (int j = 0; j < COUNT; ++j) {
      const float4 v = *reinterpret_cast<const float4*>(tile + position(thread, j) * Tile::kPitch + k);
      out[0][j] = v.x, out[1][j] = v.y, out[2][j] = v.z, out[3][j] = v.w;
    }
  }
};

// Rows along the extent: four neighbours at a time, those of the next thread behind them.
template <class Tile, int EXTENT, int COUNT>
struct Fragment<Tile, false, EXTENT, COUNT> {
  static_assert(COUNT % 4 == 0, "a thread reads four neighbours");
  static constexpr int kThreads = EXTENT / COUNT;
  static __device__ __forceinline__ int position(int thread, int j) {
    return (j / 4 * kThreads + thread) * 4 + j % 4;
  }
  static __device__ __forceinline__ void read(float (&out)[4][COUNT], const float* tile, int k, int thread) {
#pragma unroll
    for (int l = 0; l < 4; ++l)
#pragma unroll
      for (int j = 0; j < COUNT; j += 4) {
        const float4 v =
            *reinterpret_cast<const float4*>(tile + (k + l) * Tile::kPitch + position(thread, j));
        out[l][j] = v.x, out[l][j + 1] = v.y, out[l][j + 2] = v.z, out[l][j + 3] = v.w;
      }
  }
};

// As TensorCoreProduct; Format is F32, WZ at most 4.
template <class Format, class Shape, bool TRANS_A, bool TRANS_B, int WA, int WB, int WZ>
struct RegisterProduct {
  template <class Epilogue, class Totals>
  static __device__ __forceinline__ void run(const Problem& p, const void* a, const void* b,
                                             const Epilogue& epilogue, const Totals& totals,
                                             unsigned char* shared) {
    using Shared = SharedMemory<Shape, TRANS_A, TRANS_B>;
    using FragmentA = Fragment<typename Shared::A, !TRANS_A, Shape::BM, Shape::TM>;
    using FragmentB = Fragment<typename Shared::B, TRANS_B, Shape::BN, Shape::TN>;
    float* memory = reinterpret_cast<float*>(shared);  // the stages, and later the sums
    const int group = threadIdx.x / Shape::kGroupThreads, own = threadIdx.x % Shape::kGroupThreads;
    const int thread_m = own / (Shape::BN / Shape::TN), thread_n = own % (Shape::BN / Shape::TN);
    const Tiles<Shape::BM, Shape::BN> tiles(p);

    for (long long index = blockIdx.x; index < tiles.count; index += gridDim.x) {
      const auto place = tiles.place(p, index);
      const long long k = p.depth(place.member);
      const bool adds_rows = totals.wanted() && place.column == 0;
      Stages<Shape, TRANS_A, TRANS_B, WA, WB, float> stages(p, place, k, a, b, memory);
      float sums[Shape::TM][Shape::TN] = {};
      RowTotals<Format, Shape, TRANS_A> rows;
#pragma unroll 1
      for (long long left = k; left > 0; left -= Shape::BK) {
        stages.wait();
        stages.fetch_ahead(left);
        const float* tile_a = stages.current();
        const float* tile_b = tile_a + Shared::A::kElements;
        stages.advance();
        if (adds_rows) rows.add(tile_a);
#pragma unroll
        for (int step = 0; step < Shape::kGroupK; step += 4) {
          float x[4][Shape::TM], y[4][Shape::TN];
          FragmentA::read(x, tile_a, group * Shape::kGroupK + step, thread_m);
          FragmentB::read(y, tile_b, group * Shape::kGroupK + step, thread_n);
#pragma unroll
          for (int l = 0; l < 4; ++l)
#pragma unroll
            for (int i = 0; i < Shape::TM; ++i)
#pragma unroll
              for (int j = 0; j < Shape::TN; ++j) sums[i][j] = fmaf(x[l][i], y[l][j], sums[i][j]);
        }
      }

      wait_copies<0>();
      __syncthreads();  // the stages become the sums
      float* tile = memory + group * Shape::BM * Shape::kSumPitch;
#pragma unroll
      for (int i = 0; i < Shape::TM; ++i)
#pragma unroll
        for (int j = 0; j < Shape::TN; ++j)
          tile[FragmentA::position(thread_m, i) * Shape::kSumPitch + FragmentB::position(thread_n, j)] =
              sums[i][j];
      __syncthreads();
      finish_tile<Shape, WZ>(p, memory, place, 0, epilogue);
      if (adds_rows) rows.finish(p, memory, place, totals);
      __syncthreads();  // before the next tile overwrites the sums
    }
  }
};

}  // namespace aicf::gemm
