// What the tiled products share: the sums of a's rows, and the way out.
#pragma once
#include "kernels/gemm/device/stages.cuh"

namespace aicf::gemm {

// The sums of W neighbours of a row, from `column` on, a multiple of W.
template <bool SWAPPED, int W>
__device__ __forceinline__ void read_sums(float (&z)[W], const float* row, int column) {
  if constexpr (W % 4 == 0) {
#pragma unroll
    for (int w = 0; w < W; w += 4) {
      const float4 four = *reinterpret_cast<const float4*>(row + column + w);
      z[w] = four.x, z[w + 1] = four.y, z[w + 2] = four.z, z[w + 3] = four.w;
      if constexpr (SWAPPED) z[w] = four.y, z[w + 1] = four.x, z[w + 2] = four.w, z[w + 3] = four.z;
    }
  } else {
#pragma unroll
    for (int w = 0; w < W; ++w) z[w] = row[(column + w) ^ (SWAPPED ? 1 : 0)];
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
#pragma unroll 1  // epilogues may be long; one copy of them is enough
  for (int r = threadIdx.x / kAcross; r < kRows; r += Shape::kThreads / kAcross) {
    const int row = (r / kGroup * Shape::kSlices + slice) * kGroup + r % kGroup;
    if (row >= rows) continue;
    float z[W];
    read_sums<Shape::kSwapped>(z, sums + r * kPitch, column);
#pragma unroll
    for (int part = 1; part < Shape::kParts; ++part) {
      float more[W];
      read_sums<Shape::kSwapped>(more, sums + (part * kRows + r) * kPitch, column);
#pragma unroll
      for (int w = 0; w < W; ++w) z[w] += more[w];
    }
    epilogue(place.member, z, place.row + row, place.column + column);
  }
}

// What an epilogue reads beside the sums, where it has kStaged bytes of it for each word of W neighbours of a
// tile: `stage` starts to copy a word's into shared memory, in front of the product, beside which it comes.
// operator() takes it at its end then. A thread copies what it takes itself, so it waits for its own copies
// only.
template <class T>
using Void = void;
template <class Epilogue, class = void>
struct StagedBytes {
  static constexpr int kBytes = 0;
};
template <class Epilogue>
struct StagedBytes<Epilogue, Void<decltype(Epilogue::kStaged)>> {
  static constexpr int kBytes = Epilogue::kStaged;
};
template <class Shape, int W, class Place, class Epilogue>
struct StagedTile {
  const Place& place;
  const Epilogue& epilogue;
  unsigned char* memory;

  __device__ __forceinline__ int word(long long row, long long column) const {
    return static_cast<int>(row - place.row) * (Shape::BN / W) + static_cast<int>(column - place.column) / W;
  }

  // All of this thread's words of the tile, in the places of finish_tile.
  template <class P>
  __device__ __forceinline__ void start(const P& p) const {
    constexpr int kAcross = Shape::BN / W;
    const int column = threadIdx.x % kAcross * W;
    if (column >= within(p.n, place.column, Shape::BN)) return;
    const int rows = within(p.m, place.row, Shape::BM);
#pragma unroll 4
    for (int r = threadIdx.x / kAcross; r < rows; r += Shape::kThreads / kAcross)
      epilogue.stage(place.member, place.row + r, place.column + column,
                     word(place.row + r, place.column + column), memory);
  }

  __device__ __forceinline__ void operator()(const Member& member, const float (&z)[W], long long row,
                                             long long column) const {
    epilogue(member, z, row, column, word(row, column), memory);
  }
};

// The sums of a's rows along k: each thread sums a share of one row of every tile, then the shares are added
// from the first to the last. Zeros beyond the edges add nothing.
template <class Format, class Shape, bool TRANS_A>
struct RowTotals {
  using T = typename Format::Element;
  using Tile = typename SharedMemory<Shape, TRANS_A, false>::A;
  static constexpr int kShares = Shape::kThreads / Shape::BM;
  static constexpr int kSharers = Shape::kThreads / Shape::kPipelines;  // of a tile
  static constexpr int kLength = Shape::BK * Shape::BM / kSharers;
  static_assert(kSharers % Shape::BM == 0 && kLength * kSharers == Shape::BK * Shape::BM,
                "every thread sums as much of a row");

  float sum = 0;

  __device__ __forceinline__ void add(const T* tile) {
    const int r = threadIdx.x % Shape::BM, first = threadIdx.x % kSharers / Shape::BM * kLength;
#pragma unroll
    for (int l = 0; l < kLength; ++l) {
      const int k = first + l, place = r ^ Tile::kExchanged * (k / 4);
      sum += Format::wide(tile[place * Tile::kAlongExtent + k * Tile::kAlongK]);
    }
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
