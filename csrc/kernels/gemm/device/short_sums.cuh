// The product of few terms in f32, bound by writing the result: a thread has the columns of b that it
// multiplies in registers, all terms of them, and walks down rows.
#pragma once
#include "kernels/gemm/device/copies.cuh"
#include "kernels/gemm/device/problem.cuh"
#include "kernels/gemm/device/short_shapes.h"

namespace aicf::gemm {

// As TensorCoreProduct; Format is F32, k at most Shape::BK, WZ at most Shape::TN. WA and WB say nothing:
// operands are small, and come by single elements. Each sum is added from the first term to the last.
template <class Format, class Shape, bool TRANS_A, bool TRANS_B, int WA, int WB, int WZ>
struct ShortSumsProduct {
  static constexpr int BM = Shape::BM, BN = Shape::BN, BK = Shape::BK, TN = Shape::TN;
  static constexpr int kWarps = Shape::kThreads / 32;
  static_assert(BN == 32 * TN && TN % WZ == 0, "a warp has a row");

  // EXTENT rows or columns of an operand, from `first` on, with zeros beyond its edges: element l of line i
  // goes to to[i * ALONG + l * DOWN].
  template <int EXTENT, bool ALONG_K, int ALONG, int DOWN>
  static __device__ __forceinline__ void take(float* to, const float* from, long long leading, int lines,
                                              int terms) {
    constexpr int kEach = EXTENT * BK / Shape::kThreads;
    static_assert(kEach * Shape::kThreads == EXTENT * BK, "every thread takes as many");
    float values[kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int at = threadIdx.x + e * Shape::kThreads;
      const int i = ALONG_K ? at / BK : at % EXTENT, l = ALONG_K ? at % BK : at / EXTENT;
      values[e] = i < lines && l < terms ? from[ALONG_K ? i * leading + l : l * leading + i] : 0.0f;
    }
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int at = threadIdx.x + e * Shape::kThreads;
      const int i = ALONG_K ? at / BK : at % EXTENT, l = ALONG_K ? at % BK : at / EXTENT;
      to[i * ALONG + l * DOWN] = values[e];
    }
  }

  template <class Epilogue, class Totals>
  static __device__ __forceinline__ void run(const Problem& p, const void* a, const void* b,
                                             const Epilogue& epilogue, const Totals& totals,
                                             unsigned char* shared) {
    float* rows = reinterpret_cast<float*>(shared);    // BM of BK terms
    float* columns = rows + BM * Shape::kPitchOfRows;  // BK of BN columns
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Tiles<BM, BN> tiles(p);
    for (long long index = blockIdx.x; index < tiles.count; index += gridDim.x) {
      const auto place = tiles.place(p, index);
      const int terms = static_cast<int>(p.depth(place.member));
      const int down = within(p.m, place.row, BM), across = within(p.n, place.column, BN);
      const float* x = static_cast<const float*>(a) + p.a.start(place.member) +
                       (TRANS_A ? place.row : place.row * p.a.leading);
      const float* y = static_cast<const float*>(b) + p.b.start(place.member) +
                       (TRANS_B ? place.column * p.b.leading : place.column);
      take<BM, !TRANS_A, Shape::kPitchOfRows, 1>(rows, x, p.a.leading, down, terms);
      take<BN, TRANS_B, 1, Shape::kPitchOfColumns>(columns, y, p.b.leading, across, terms);
      __syncthreads();
      // WZ neighbours of every 32 WZ, so that a warp writes what follows each other.
      float own[BK][TN];
#pragma unroll
      for (int l = 0; l < BK; ++l)
#pragma unroll
        for (int j = 0; j < TN; ++j)
          own[l][j] = columns[l * Shape::kPitchOfColumns + (j / WZ * 32 + lane) * WZ + j % WZ];
#pragma unroll 1
      for (int row = warp; row < down; row += kWarps) {
        float sums[TN] = {};
#pragma unroll
        for (int l = 0; l < BK; l += 4) {
          const float4 four = *reinterpret_cast<const float4*>(rows + row * Shape::kPitchOfRows + l);
          const float term[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
          for (int s = 0; s < 4; ++s)
#pragma unroll
            for (int j = 0; j < TN; ++j) sums[j] = fmaf(term[s], own[l + s][j], sums[j]);
        }
#pragma unroll
        for (int first = 0; first < TN; first += WZ) {
          const int column = (first / WZ * 32 + lane) * WZ;
          float z[WZ];
#pragma unroll
          for (int w = 0; w < WZ; ++w) z[w] = sums[first + w];
          if (column < across) epilogue(place.member, z, place.row + row, place.column + column);
        }
      }
      if (totals.wanted() && place.column == 0 && static_cast<int>(threadIdx.x) < down) {
        float total = 0;
        for (int l = 0; l < terms; ++l) total += rows[threadIdx.x * Shape::kPitchOfRows + l];
        totals(place.member, place.row + threadIdx.x, total);
      }
      __syncthreads();  // before the next tile overwrites the operands
    }
  }
};

}  // namespace aicf::gemm
