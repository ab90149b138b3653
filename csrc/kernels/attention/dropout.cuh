// Which weights of attention dropout keeps, in the lanes that have them. Of the eight weights of one draw a
// lane has all where its rows are queries. Where they are keys it has four and another lane the others: each
// of the two makes half of their draws, and they exchange what they need.
#pragma once
#include "kernels/attention/draws.h"
#include "kernels/attention/products.cuh"

namespace aicf::cuda {

// A bit for each element of the lane's tiles, 4 tile + e: 1 where the weight is kept. Rows from `row` on are
// queries, or keys with KEYS_FIRST; `row` is a multiple of 16, `column` one of 16 or, for one tile, of 8. All
// lanes of a warp.
template <bool KEYS_FIRST, int TILES>
__device__ __forceinline__ unsigned kept_bits(const Draws& draws, int64_t row, int64_t column) {
  static_assert(TILES * 4 <= 32 && (TILES == 1 || TILES % 2 == 0), "a bit for each element, tiles in pairs");
  const int high = lane() / 4, low = lane() % 4, odd = high % 2;
  const int64_t i = KEYS_FIRST ? column / 16 * 8 + 2 * low + odd : row / 2 + high;
  const int64_t j = KEYS_FIRST ? row / 4 + high / 2 : column / 16 * 4 + low;
  unsigned bits = 0;  // the lower one of two neighbours is of the even key
#pragma unroll 2
  for (int pair = 0; pair < (TILES + 1) / 2; ++pair) {
    unsigned words[4];
    draws.draw(words, KEYS_FIRST ? i + pair * 8 : i, KEYS_FIRST ? j : j + pair * 4);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int tile = KEYS_FIRST ? k / 2 : k % 2, half = KEYS_FIRST ? k % 2 : k / 2;
      const int at = 8 * pair + 4 * tile + 2 * half;
      bits |= static_cast<unsigned>(draws.keeps_even(words[k])) << at;
      bits |= static_cast<unsigned>(draws.keeps_odd(words[k])) << (at + 1);
    }
  }
  if constexpr (KEYS_FIRST) {
    // Of two neighbouring queries this lane has drawn for one, with its own key and that of the lane which
    // has drawn for the other.
    const unsigned own = 0x55555555u << odd, other = __shfl_xor_sync(0xffffffffu, bits, 4) & own;
    bits = (bits & own) | (odd ? other >> 1 : other << 1);
  }
  if constexpr (TILES == 1) bits >>= column / 8 % 2 * 4;
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
