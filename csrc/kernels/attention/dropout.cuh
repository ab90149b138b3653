// Which weights of attention dropout keeps, in the lanes that have them: four draws of one call are of one
// lane, whether its rows are queries or keys.
#pragma once
#include "kernels/attention/draws.h"
#include "kernels/attention/products.cuh"

namespace aicf::cuda {

// A bit for each element of the lane's tiles, 4 tile + e: 1 where the weight is kept. Rows from `row` on are
// queries, or keys with KEYS_FIRST; `row` is a multiple of 16, `column` one of 16 or, for one tile, of 8.
template <bool KEYS_FIRST, int TILES>
__device__ __forceinline__ unsigned kept_bits(const Draws& draws, int64_t row, int64_t column) {
  static_assert(TILES * 4 <= 32 && (TILES == 1 || TILES % 2 == 0), "a bit for each element, tiles in pairs");
  const int64_t r = row / 2 + lane() / 4;
  unsigned bits = 0;
#pragma unroll 1
  for (int pair = 0; pair < (TILES + 1) / 2; ++pair)
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int64_t c = column / Draws::kTile * Draws::kQuarter + pair * 8 + column_of(side);
      unsigned words[4];
      draws.draw(words, KEYS_FIRST ? c : r, KEYS_FIRST ? r : c);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned first = KEYS_FIRST ? words[half] : words[2 * half];
        const unsigned second = KEYS_FIRST ? words[2 + half] : words[2 * half + 1];
        if constexpr (TILES == 1) {
          const unsigned word = column / Draws::kQuarter % 2 != 0 ? second : first;
          bits |= static_cast<unsigned>(word >= draws.limit) << (2 * half + side);
        } else {
          bits |= static_cast<unsigned>(first >= draws.limit) << (8 * pair + 2 * half + side);
          bits |= static_cast<unsigned>(second >= draws.limit) << (8 * pair + 4 + 2 * half + side);
        }
      }
    }
  return bits;
}

// Whether element `e` of a tile is kept.
__device__ __forceinline__ bool keeps(unsigned bits, int tile, int e) { return bits >> (tile * 4 + e) & 1; }

// Weights that are dropped become 0.
template <int TILES, class C>
__device__ __forceinline__ void drop(C (&weights)[TILES][4], unsigned bits) {
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (!keeps(bits, tile, e)) weights[tile][e] = 0;
}

}  // namespace aicf::cuda
