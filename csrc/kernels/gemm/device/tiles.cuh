// What the tiled products share: the sums of a's rows, and the way out.
#pragma once
#include "kernels/gemm/device/stages.cuh"

namespace aicf::gemm {

// W sums that follow each other, at a multiple of W.
template <int W>
__device__ __forceinline__ void read_sums(float (&z)[W], const float* sums) {
  if constexpr (W % 4 == 0) {
#pragma unroll
    for (int w = 0; w < W; w += 4) {
      const float4 four = *reinterpret_cast<const float4*>(sums + w);
      z[w] = four.x, z[w + 1] = four.y, z[w + 2] = four.z, z[w + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int w = 0; w < W; ++w) z[w] = sums[w];
  }
}

// Hands the sums of a slice of the tile at `place`, which lie in shared memory as Shape::kParts tiles to be
// added from the first to the last, to the epilogue, W neighbours at a time. W > 1 divides n. Of each
// kSlices * kSliceRows rows of the tile every slice has kSliceRows, in their order.
template <class Shape, int W, class P, class Place, class Epilogue>
__device__ __forceinline__ void finish_tile(const P& p, const float* sums, const Place& place, int slice,
                                            const Epilogue& epilogue) {
  constexpr int kAcross = Shape::BN / W, kPitch = Shape::kSumPitch, kRows = Shape::BM / Shape::kSlices;
  constexpr int kGroup = Shape::kSliceRows;
  static_assert(Shape::kThreads % kAcross == 0, "a thread stays in its columns");
  const int column = threadIdx.x % kAcross * W;
  if (column >= within(p.n, place.column, Shape::BN)) return;
  const int rows = within(p.m, place.row, Shape::BM);
  sums += column;
#pragma unroll 1  // epilogues may be long; one copy of them is enough
  for (int r = threadIdx.x / kAcross; r < kRows; r += Shape::kThreads / kAcross) {
    const int row = (r / kGroup * Shape::kSlices + slice) * kGroup + r % kGroup;
    if (row >= rows) continue;
    float z[W];
    read_sums(z, sums + r * kPitch);
#pragma unroll
    for (int part = 1; part < Shape::kParts; ++part) {
      float more[W];
      read_sums(more, sums + (part * kRows + r) * kPitch);
#pragma unroll
      for (int w = 0; w < W; ++w) z[w] += more[w];
    }
    epilogue(place.member, z, place.row + row, place.column + column);
  }
}

// The sums of a's rows along k: each thread sums a share of one row of every tile, then the shares are added
// from the first to the last. Zeros beyond the edges add nothing.
template <class Format, class Shape, bool TRANS_A>
struct RowTotals {
  using T = typename Format::Element;
  using Tile = typename SharedMemory<Shape, TRANS_A, false>::A;
  static constexpr int kShares = Shape::kThreads / Shape::BM;
  static constexpr int kLength = Shape::BK / kShares;
  static_assert(kShares >= 1 && Shape::kThreads % Shape::BM == 0 && Shape::BK % kShares == 0,
                "every thread sums as much of a row");

  float sum = 0;

  __device__ __forceinline__ void add(const T* tile) {
    const int r = threadIdx.x % Shape::BM, first = threadIdx.x / Shape::BM * kLength;
#pragma unroll
    for (int l = 0; l < kLength; ++l)
      sum += Format::wide(tile[r * Tile::kAlongExtent + (first + l) * Tile::kAlongK]);
  }

  // All threads; into the floats of `shared` behind the sums.
  template <class Place, class Totals>
  __device__ __forceinline__ void finish(const Problem& p, float* shared, const Place& place,
                                         const Totals& totals) const {
    float* scratch = shared + Shape::kParts * (Shape::BM / Shape::kSlices) * Shape::kSumPitch;
    scratch[threadIdx.x] = sum;
    __syncthreads();
    const int r = threadIdx.x;
    if (r < Shape::BM && place.row + r < p.m) {
      float total = scratch[r];
#pragma unroll
      for (int share = 1; share < kShares; ++share) total += scratch[share * Shape::BM + r];
      totals(place.member, place.row + r, total);
    }
  }
};

}  // namespace aicf::gemm
