// The random numbers of 16 bits of attention's dropout: `tiled_half` of the dialect nn. For an even key j the
// queries i and i + 8 and the keys j, j + 1, j + 8 and j + 9 of a tile of 16 x 16 share one call of
// Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011).
#pragma once
#include "kernels/attention/problem.h"

namespace aicf {

// Of one head; in a launch without dropout nothing may be asked of it.
struct Draws {
  static constexpr int64_t kTile = 16;

  AICF_HD Draws(const AttentionProblem& p, int64_t b, int64_t h)
      : site(p.site),
        limit(p.limit),
        columns(columns_of(p.keys)),
        first((b * p.heads + h) * rows_of(p.queries) * columns) {
    if (p.random == nullptr) return;
    left = static_cast<uint32_t>(p.random[0]);
    right = static_cast<uint32_t>(p.random[0] >> 32);
    step = static_cast<uint32_t>(p.random[1]);
  }

  // The words of (i, j), (i, j + 8), (i + 8, j) and (i + 8, j + 8), where `row` and `column` are of i and j.
  // Of each word the lower half is of the even key, the upper one of the next.
  AICF_HD void draw(uint32_t (&words)[4], int64_t row, int64_t column) const {
    const int64_t element = first + row * columns + column;
    uint32_t a = static_cast<uint32_t>(element), b = static_cast<uint32_t>(element >> 32), c = site, d = step;
    uint32_t x = left, y = right;
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int i = 0; i < 10; ++i) {
      const uint64_t one = a * uint64_t{0xD2511F53}, two = c * uint64_t{0xCD9E8D57};
      a = static_cast<uint32_t>(two >> 32) ^ b ^ x;
      b = static_cast<uint32_t>(two);
      c = static_cast<uint32_t>(one >> 32) ^ d ^ y;
      d = static_cast<uint32_t>(one);
      x += 0x9E3779B9u;
      y += 0xBB67AE85u;
    }
    words[0] = a, words[1] = b, words[2] = c, words[3] = d;
  }

  // Whether the weight of the even key of a word is kept, and that of the next.
  AICF_HD bool keeps_even(uint32_t word) const { return word << 16 >= limit; }
  AICF_HD bool keeps_odd(uint32_t word) const { return word >= limit; }

  // The number of a query and a key among those that have draws of their own, and how many these are.
  static AICF_HD int64_t row_of(int64_t i) { return i / kTile * 8 + i % 8; }
  static AICF_HD int64_t rows_of(int64_t queries) { return (queries + kTile - 1) / kTile * 8; }
  static AICF_HD int64_t column_of(int64_t j) { return j / kTile * 4 + j % 8 / 2; }
  static AICF_HD int64_t columns_of(int64_t keys) { return (keys + kTile - 1) / kTile * 4; }

  uint32_t left, right, step, site, limit;
  int64_t columns, first;
};

}  // namespace aicf
