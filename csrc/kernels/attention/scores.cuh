// Scores of one head: products scaled, masked, and as weights.
#pragma once
#include "kernels/attention/problem.h"
#include "kernels/attention/products.cuh"

namespace aicf::cuda {

template <class C>
__device__ __forceinline__ C minus_infinity() {
  return static_cast<C>(-__int_as_float(0x7f800000));
}

// Which elements of a lane's tiles are no scores: outside of them, or behind the query where it sees only
// what is before it. Rows of a tile are queries, or keys with KEYS_FIRST, from `row` on, columns the others.
template <bool KEYS_FIRST>
struct Bounds {
  int64_t query, key;  // of the first element

  __device__ __forceinline__ Bounds(const AttentionProblem& p, int64_t row, int64_t column)
      : query(KEYS_FIRST ? column : row), key(KEYS_FIRST ? row : column) {
    const int queries = near(p.queries - query), keys = near(p.keys - key), own = column_of(0);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row_of(2 * half);
      if constexpr (KEYS_FIRST) {
        begin[half] = (p.causal ? r + near(key - query) : 0) - own;
        end[half] = (r < keys ? queries : 0) - own;
      } else {
        end[half] = (r < queries ? min(keys, p.causal ? r + near(query - key) + 1 : kFar) : 0) - own;
      }
    }
  }

  // Of element `e` of a tile.
  __device__ __forceinline__ bool hides(int tile, int e) const {
    const int column = tile * 8 + e % 2;
    return column >= end[e / 2] || (KEYS_FIRST && column < begin[e / 2]);
  }

 private:
  static constexpr int kFar = 1 << 20;  // more rows and columns than a tile has
  static __device__ __forceinline__ int near(int64_t count) {
    return count > kFar ? kFar : count < -kFar ? -kFar : static_cast<int>(count);
  }

  int begin[2], end[2];  // of the columns that each of the lane's rows has, from the lane's first one on
};

template <class T>
struct Scoring {
  using C = Compute<T>;

  __device__ __forceinline__ Scoring(const AttentionProblem& problem, int64_t b, int64_t h)
      : p(problem), scale(static_cast<C>(problem.scale)), first(b * p.mask.batch + h * p.mask.head) {}

  // Products of queries and keys become scores. What the mask adds is read for all of them at once: a read
  // next to each product would wait for memory that many times.
  template <bool KEYS_FIRST, int TILES>
  __device__ __forceinline__ void score(C (&products)[TILES][4], const Bounds<KEYS_FIRST>& bounds) const {
    C added[TILES][4];
    switch (p.mask_kind) {
      case MaskKind::Seen:
        read<unsigned char>(added, bounds,
                            [](unsigned char seen) { return seen != 0 ? C(0) : minus_infinity<C>(); });
        break;
      case MaskKind::Added:
        read<T>(added, bounds, [](T summand) { return widen(summand); });
        break;
      case MaskKind::AddedWide:
        read<C>(added, bounds, [](C summand) { return summand; });
        break;
      default:
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
          for (int e = 0; e < 4; ++e) products[tile][e] *= scale;
        return;
    }
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
      for (int e = 0; e < 4; ++e) products[tile][e] = products[tile][e] * scale + added[tile][e];
  }

  const AttentionProblem& p;
  C scale;

 private:
  template <class M, bool KEYS_FIRST, int TILES, class F>
  __device__ __forceinline__ void read(C (&added)[TILES][4], const Bounds<KEYS_FIRST>& bounds,
                                       F summand) const {
    const M* mask =
        static_cast<const M*>(p.mask.data) + (first + bounds.query * p.mask.row + bounds.key * p.mask.column);
    const int64_t down = KEYS_FIRST ? p.mask.column : p.mask.row;
    const int64_t across = KEYS_FIRST ? p.mask.row : p.mask.column;
    const M* own = mask + row_of(0) * down + column_of(0) * across;
    if (across == 1)  // then all that differs from one read of a row to the next is known here
      read_with<1>(added, bounds, summand, own, down, 1);
    else
      read_with<0>(added, bounds, summand, own, down, across);
  }
  template <int ACROSS, class M, bool KEYS_FIRST, int TILES, class F>
  __device__ __forceinline__ void read_with(C (&added)[TILES][4], const Bounds<KEYS_FIRST>& bounds, F summand,
                                            const M* own, int64_t down, int64_t across) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const M* row = own + half * 8 * down;
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const bool hidden = bounds.hides(tile, 2 * half + e);
          added[tile][2 * half + e] =
              hidden ? C(0) : summand(row[(tile * 8 + e) * (ACROSS ? ACROSS : across)]);
        }
    }
  }

  int64_t first;
};

}  // namespace aicf::cuda
