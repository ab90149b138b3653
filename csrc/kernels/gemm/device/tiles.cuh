// What the tiled products share: operands into shared memory, sums along k, and the way out.
#pragma once
#include "kernels/gemm/device/instructions.cuh"
#include "kernels/gemm/device/problem.cuh"
#include "kernels/gemm/device/shapes.h"

namespace aicf::gemm {

// All THREADS of the block start copying the window of Tile::kRows x Tile::kColumns elements at (row, column)
// of the matrix `global` of rows x columns elements, `pitch` of them from row to row, W at a time; what lies
// outside the matrix becomes zero. W > 1 needs the matrix and its rows aligned to W elements.
template <class Tile, int THREADS, int W, class T>
__device__ __forceinline__ void copy_window(T* shared, const T* global, long long row, long long column,
                                            long long rows, long long columns, long long pitch) {
  constexpr int kAcross = Tile::kColumns / W;
  for (int i = threadIdx.x; i < Tile::kRows * kAcross; i += THREADS) {
    const int r = i / kAcross, c = i % kAcross * W;
    const long long left = row + r < rows ? columns - (column + c) : 0;
    const int valid = left <= 0 ? 0 : left < W ? static_cast<int>(left) : W;
    const T* source = valid > 0 ? global + (row + r) * pitch + column + c : global;
    T* target = shared + r * Tile::kPitch + c;
    if constexpr (sizeof(T) * W >= 4) {
      copy_async<static_cast<int>(sizeof(T)) * W>(target, source, valid * static_cast<int>(sizeof(T)));
    } else {
      *target = valid > 0 ? *source : T{};
    }
  }
}

// All threads of the block start copying the tiles of a at `row` and of b at `column` from step `k` on; b's
// follows a's in `stage`. WA and WB as W of copy_window.
template <class Shape, bool TRANS_A, bool TRANS_B, int WA, int WB, class T>
__device__ __forceinline__ void copy_stage(const Problem& p, T* stage, const T* a, const T* b, long long row,
                                           long long column, long long k) {
  using Shared = SharedMemory<Shape, TRANS_A, TRANS_B>;
  constexpr int kThreads = Shape::kThreads;
  if constexpr (TRANS_A)
    copy_window<typename Shared::A, kThreads, WA>(stage, a, k, row, p.k, p.m, p.a.leading);
  else
    copy_window<typename Shared::A, kThreads, WA>(stage, a, row, k, p.m, p.k, p.a.leading);
  if (p.n == 0) return;  // only totals are asked for: b holds nothing
  stage += Shared::A::kElements;
  if constexpr (TRANS_B)
    copy_window<typename Shared::B, kThreads, WB>(stage, b, column, k, p.n, p.k, p.b.leading);
  else
    copy_window<typename Shared::B, kThreads, WB>(stage, b, k, column, p.k, p.n, p.b.leading);
}

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

// Hands the sums of the tile at `place`, which lie in shared memory as Shape::kParts tiles to be added from
// the first to the last, to the epilogue, W neighbours at a time. W > 1 divides n.
template <class Shape, int W, class Place, class Epilogue>
__device__ __forceinline__ void finish_tile(const Problem& p, const float* sums, const Place& place,
                                            const Epilogue& epilogue) {
  constexpr int kAcross = Shape::BN / W, kPitch = Shape::kSumPitch, kPart = Shape::BM * kPitch;
#pragma unroll 1  // epilogues may be long; one copy of them is enough
  for (int i = threadIdx.x; i < Shape::BM * kAcross; i += Shape::kThreads) {
    const int r = i / kAcross, c = i % kAcross * W;
    if (place.row + r >= p.m || place.column + c >= p.n) continue;
    float z[W];
    read_sums(z, sums + r * kPitch + c);
#pragma unroll
    for (int part = 1; part < Shape::kParts; ++part) {
      float more[W];
      read_sums(more, sums + part * kPart + r * kPitch + c);
#pragma unroll
      for (int w = 0; w < W; ++w) z[w] += more[w];
    }
    epilogue(place.member, z, place.row + r, place.column + c);
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

  // `scratch`: a float a thread of shared memory that no thread uses any more.
  template <class Place, class Totals>
  __device__ __forceinline__ void finish(const Problem& p, float* scratch, const Place& place,
                                         const Totals& totals) const {
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
