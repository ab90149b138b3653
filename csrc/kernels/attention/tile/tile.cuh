// Attention of heads that are one tile: all queries and keys of a head, at most 64, lie in shared memory at
// once, so each operand is read once, and no sum is over a walk. A head has ROWS / 16 of the four warps of a
// block of threads.
#pragma once
#include <algorithm>

#include "kernels/attention/dropout.cuh"
#include "kernels/attention/scores.cuh"
#include "kernels/attention/tiling.cuh"
#include "kernels/common/reduce.cuh"

namespace aicf::cuda {
namespace {

template <class T_, int ROWS, int PADDED>
struct HeadTiles {
  using T = T_;
  static constexpr int kRows = ROWS, kPadded = PADDED, kThreads = 4 * kWarp;
  static constexpr int kOwnThreads = ROWS / kWarpRows * kWarp, kHeads = kThreads / kOwnThreads;
  using Operand = Window<T, ROWS, PADDED>;
  using Scores = Window<T, ROWS, ROWS>;
  static constexpr int kPitch = Operand::kPitch, kScorePitch = Scores::kPitch;
  static constexpr int kTiles = ROWS / 8;          // of 8 columns in the scores of a warp
  static constexpr int kColumnTiles = PADDED / 8;  // in its results
  using Products = float[kTiles][4];
  using Results = float[kColumnTiles][4];
};

// Which head a warp works for, and its first row there. In the last block some may have none: they compute
// the first head once more and store nothing.
template <class S>
struct HeadOf {
  int slot, thread, row;  // of the block's heads; of the head's threads; the warp's first
  bool there;
  int64_t b, h;

  __device__ __forceinline__ explicit HeadOf(const AttentionProblem& p)
      : HeadOf(p, static_cast<int64_t>(blockIdx.x) * S::kHeads + threadIdx.x / S::kOwnThreads) {}
  __device__ __forceinline__ HeadOf(const AttentionProblem& p, int64_t index)
      : slot(threadIdx.x / S::kOwnThreads),
        thread(threadIdx.x % S::kOwnThreads),
        row(thread / kWarp * kWarpRows),
        there(index < p.batch * p.heads),
        b(there ? index / p.heads : 0),
        h(there ? index % p.heads : 0) {}
};

// The threads of a head start copying its rows; what lies outside becomes zero. `wide` as in Tiling::load.
template <class S>
__device__ __forceinline__ void load_tile(typename S::T* to, const Heads<const void*>& heads, int64_t b,
                                          int64_t h, int thread, int rows, int columns, bool wide) {
  using T = typename S::T;
  constexpr int kWide = kWidest<T>, kAcross = S::kPadded / kWide, kChunks = S::kRows * kAcross;
  static_assert(kChunks % S::kOwnThreads == 0, "every thread copies as much");
  const T* from = heads.of<const T>(b, h);
#pragma unroll
  for (int chunk = thread; chunk < kChunks; chunk += S::kOwnThreads) {
    const int row = chunk / kAcross, column = chunk % kAcross * kWide;
    const int valid = row < rows ? min(max(columns - column, 0), kWide) : 0;
    T* target = to + row * S::kPitch + column;
    const T* source = valid > 0 ? from + row * heads.row + column : from;
    if (wide) {
      gemm::copy_async<16>(target, source, valid * static_cast<int>(sizeof(T)));
    } else {
      for (int e = 0; e < kWide; ++e) target[e] = e < valid ? source[e] : T{};
    }
  }
}

// Rows of a warp, rounded, as two neighbours in a register each.
template <class S>
struct Rounded {
  unsigned at[S::kColumnTiles][2];

  __device__ __forceinline__ Rounded(const typename S::Results& sums, float low, float high) {
#pragma unroll
    for (int tile = 0; tile < S::kColumnTiles; ++tile) {
      at[tile][0] = pack<typename S::T>(sums[tile][0] * low, sums[tile][1] * low);
      at[tile][1] = pack<typename S::T>(sums[tile][2] * high, sums[tile][3] * high);
    }
  }

  // By way of 16 rows in shared memory that are the warp's own; `row` is the first of them in the head.
  __device__ __forceinline__ void store(typename S::T* shared, const Heads<void*>& heads, int64_t b,
                                        int64_t h, int row, int rows, int columns, bool wide) const {
    using T = typename S::T;
    constexpr int kWide = kWidest<T>, kAcross = S::kPadded / kWide;
    T* own = shared + row_of(0) * S::kPitch + column_of(0);
#pragma unroll
    for (int tile = 0; tile < S::kColumnTiles; ++tile)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<unsigned*>(own + half * 8 * S::kPitch + tile * 8) = at[tile][half];
    __syncwarp();
    T* to = heads.of<T>(b, h);
#pragma unroll
    for (int chunk = lane(); chunk < kWarpRows * kAcross; chunk += kWarp) {
      const int r = chunk / kAcross, column = chunk % kAcross * kWide, valid = columns - column;
      if (row + r >= rows || valid <= 0) continue;
      const T* source = shared + r * S::kPitch + column;
      T* target = to + (row + r) * heads.row + column;
      if (wide) {
        *reinterpret_cast<uint4*>(target) = *reinterpret_cast<const uint4*>(source);
      } else {
        for (int e = 0; e < min(valid, kWide); ++e) target[e] = source[e];
      }
    }
  }
};

// sums += xT b, with the rows of x and b in shared memory: 16 columns of x from `x` on, all its kRows rows.
template <class S>
__device__ __forceinline__ void add_transposed(typename S::Results& sums, const typename S::T* x,
                                               const typename S::T* b) {
  x += (lane() / 16 * 8 + lane() % 8) * S::kScorePitch + lane() / 8 % 2 * 8;
  b += lane() % 16 * S::kPitch + lane() / 16 * 8;
#pragma unroll
  for (int k = 0; k < S::kRows; k += 16) {
    unsigned a[4];
    gemm::read_matrices<true>(a, x + k * S::kScorePitch);
#pragma unroll
    for (int tile = 0; tile < S::kColumnTiles; tile += 2) {
      unsigned y[4];
      gemm::read_matrices<true>(y, b + k * S::kPitch + tile * 8);
      Format<typename S::T>::multiply(sums[tile], a, {y[0], y[1]});
      Format<typename S::T>::multiply(sums[tile + 1], a, {y[2], y[3]});
    }
  }
}

// Of a warp's rows of scores, for their gradient.
struct TileRows {
  float largest[2], inverse[2];

  __device__ __forceinline__ TileRows(const AttentionProblem& p, int64_t b, int64_t h, int row) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = row + row_of(2 * half);
      const int64_t at = (b * p.heads + h) * p.queries + i;
      largest[half] = i < p.queries ? static_cast<const float*>(p.largest)[at] : 0;
      inverse[half] = i < p.queries ? 1 / static_cast<const float*>(p.total)[at] : 0;
    }
  }
};

// Products become what is left of weights, and the products of dout and values the gradient of the scores.
// All keys of a row are here: delta, the sum of dout * out, is that of what is left times the slopes.
template <class S>
__device__ __forceinline__ void differentiate_tile(const AttentionProblem& p, int64_t b, int64_t h, int row,
                                                   const TileRows& rows, typename S::Products& weights,
                                                   typename S::Products& slopes) {
  using T = typename S::T;
  const Bounds<false> bounds(p, row, 0);
  Scoring<T>(p, b, h).score(weights, bounds);
#pragma unroll
  for (int tile = 0; tile < S::kTiles; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float weight = exp_for<T>(weights[tile][e] - rows.largest[e / 2]) * rows.inverse[e / 2];
      weights[tile][e] = bounds.hides(tile, e) ? 0.0f : weight;
    }
  const bool drops = p.random != nullptr;
  const unsigned bits = drops ? kept_bits<false, S::kTiles>(Draws(p, b, h), row, 0) : 0;
  const auto drop = [&](typename S::Products& x) {
#pragma unroll
    for (int tile = 0; tile < S::kTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 4; ++e) x[tile][e] *= keeps(bits, tile, e) ? static_cast<float>(p.kept) : 0.0f;
  };
  if (drops) drop(slopes);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float delta = 0;
#pragma unroll
    for (int tile = 0; tile < S::kTiles; ++tile)
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; ++e) delta = fused(weights[tile][e], slopes[tile][e], delta);
    delta = reduce_row<Add>(delta);
#pragma unroll
    for (int tile = 0; tile < S::kTiles; ++tile)
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; ++e)
        slopes[tile][e] = weights[tile][e] * (slopes[tile][e] - delta);
  }
  if (drops) drop(weights);
}

// Whether rows of all results can be written 16 bytes at a time.
template <class T>
bool rows_are_stored_wide(std::initializer_list<const Heads<void*>*> results,
                          std::initializer_list<int64_t> sizes) {
  const auto whole = [](int64_t n) { return n % kWidest<T> == 0; };
  return std::all_of(results.begin(), results.end(),
                     [&](const Heads<void*>* each) {
                       return reinterpret_cast<uintptr_t>(each->data) % 16 == 0 && whole(each->batch) &&
                              whole(each->head) && whole(each->row);
                     }) &&
         std::all_of(sizes.begin(), sizes.end(), whole);
}

// Calls f(HeadTiles) for the least tile that holds the queries and keys of a head, and their elements.
template <class F>
Status with_tiles(const AttentionProblem& p, F f) {
  const int64_t rows = std::max(p.queries, p.keys), size = std::max(p.size, p.value_size);
  return with_half_type(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto of_rows = [&](auto padded) {
      constexpr int kPadded = decltype(padded)::value;
      if (rows <= 16) return f(HeadTiles<T, 16, kPadded>{});
      if (rows <= 32) return f(HeadTiles<T, 32, kPadded>{});
      return f(HeadTiles<T, 64, kPadded>{});
    };
    if (size <= 32) return of_rows(std::integral_constant<int, 32>{});
    if (size <= 64) return of_rows(std::integral_constant<int, 64>{});
    return of_rows(std::integral_constant<int, 128>{});
  });
}

template <class S>
dim3 blocks_of(const AttentionProblem& p) {
  return dim3(static_cast<unsigned>(ceil_div<int64_t>(p.batch * p.heads, S::kHeads)));
}

}  // namespace
}  // namespace aicf::cuda
