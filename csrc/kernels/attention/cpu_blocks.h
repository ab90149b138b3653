// What forward and backward on the CPU share: blocks of operands as matrices that BLAS takes, and of scores.
#pragma once
#include <algorithm>
#include <climits>

#include "kernels/attention/draws.h"
#include "kernels/common/cpu_blas.h"
#include "kernels/common/cpu_parallel.h"
#include "kernels/common/cpu_types.h"

namespace aicf::cpu {

// The most of a block of scores, which stays in the cache of a core.
constexpr int64_t kQueryBlock = 64, kKeyBlock = 256;

// Those of one launch; rows of scores are `keys` apart.
struct Blocks {
  int64_t queries, keys;
  explicit Blocks(const AttentionProblem& p)
      : queries(std::clamp<int64_t>(p.queries, 1, kQueryBlock)),
        keys(std::clamp<int64_t>(p.keys, 1, kKeyBlock)) {}
};

// Which weights of a block of scores dropout keeps, 1 or 0, each draw made once. A block begins at a multiple
// of Draws::kTile.
struct Kept {
  uint8_t at[kQueryBlock][kKeyBlock];  // nothing in it without dropout

  Kept(const AttentionProblem& p, int64_t b, int64_t h, int64_t query, int64_t queries, int64_t key,
       int64_t keys) {
    if (p.random == nullptr) return;
    const Draws draws(p, b, h);
    const int64_t row = Draws::row_of(query), column = Draws::column_of(key);
    for (int64_t r = 0; r < Draws::rows_of(queries); ++r)
      for (int64_t c = 0; c < Draws::columns_of(keys); ++c) {
        uint32_t words[4];
        draws.draw(words, row + r, column + c);
        const int64_t i = r / 8 * Draws::kTile + r % 8, j = c / 4 * Draws::kTile + c % 4 * 2;
        for (int k = 0; k < 4; ++k) {
          uint8_t* to = &at[i + k / 2 * 8][j + k % 2 * 8];
          to[0] = draws.keeps_even(words[k]);
          to[1] = draws.keeps_odd(words[k]);
        }
      }
  }
};

inline int64_t blocks_of(int64_t rows, int64_t block) { return (rows + block - 1) / block; }

// `tasks` done by at most so many threads at a time, each with `scratch` elements of the workspace. Depends
// on the shape alone.
struct Shares {
  int64_t count, scratch;
  Shares(int64_t tasks, int64_t elements)
      : count(std::min<int64_t>(tasks, 32)), scratch((elements + 15) / 16 * 16) {}

  // Calls f(task, scratch of the share). Neighbours go to different shares: where `causal` hides keys their
  // work differs. products: the multiplications of all tasks.
  template <class C, class F>
  void run(int64_t tasks, double products, C* workspace, F f) const {
    const double one = std::max(products / double(std::max<int64_t>(count, 1)), 1.0);
    const auto grain = static_cast<int64_t>(std::max(1.0, std::min(double(kGrainProducts) / one, 1e6)));
    in_parallel(count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t share = begin; share < end; ++share)
        for (int64_t task = share; task < tasks; task += count) f(task, workspace + share * scratch);
    });
  }
};

template <class C>
struct Matrix {
  const C* data;
  int64_t leading;
};

// Rows from `row` on of a head, widened; in place where BLAS can read them there, else copied to `room`.
template <class T>
Matrix<Compute<T>> matrix_of(const Heads<const void*>& heads, int64_t b, int64_t h, int64_t row, int64_t rows,
                             int64_t columns, Compute<T>* room) {
  const T* first = heads.of<const T>(b, h) + row * heads.row;
  if constexpr (std::is_same_v<T, Compute<T>>)
    if (heads.column == 1 && heads.row >= columns && heads.row <= INT_MAX) return {first, heads.row};
  for (int64_t r = 0; r < rows; ++r) {
    const T* from = first + r * heads.row;
    Compute<T>* to = room + r * columns;
    if (heads.column == 1)
      for (int64_t c = 0; c < columns; ++c) to[c] = widen(from[c]);
    else
      for (int64_t c = 0; c < columns; ++c) to[c] = widen(from[c * heads.column]);
  }
  return {room, std::max<int64_t>(columns, 1)};
}

// Rows of a result: `value(r, c)`, rounded once.
template <class T, class F>
void store_rows(const Heads<void*>& heads, int64_t b, int64_t h, int64_t row, int64_t rows, int64_t columns,
                F value) {
  for (int64_t r = 0; r < rows; ++r) {
    T* to = heads.of<T>(b, h) + (row + r) * heads.row;
    if (heads.column == 1)
      for (int64_t c = 0; c < columns; ++c) to[c] = narrow<T>(value(r, c));
    else
      for (int64_t c = 0; c < columns; ++c) to[c * heads.column] = narrow<T>(value(r, c));
  }
}

// c = op(a) op(b), or added to c.
template <class C>
void multiply(int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b, const Matrix<C>& a,
              const Matrix<C>& b, C* c, int64_t leading, bool add) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!add)
      for (int64_t i = 0; i < m; ++i) std::fill_n(c + i * leading, n, C(0));
    return;
  }
  blas_gemm(BlasProduct{m, n, k, trans_a, trans_b, a.leading, b.leading, leading, add}, a.data, b.data, c);
}

// The products of query `i` with the keys from `key` on become scores: `count` of them, none of which
// `causal` hides. M: the type of the mask's elements, uint8_t for booleans.
template <class M, class C>
void mask_row(const AttentionProblem& p, int64_t b, int64_t h, int64_t i, int64_t key, int64_t count,
              C* row) {
  const M* mask = p.mask.of<const M>(b, h) + i * p.mask.row + key * p.mask.column;
  const C scale = static_cast<C>(p.scale);
  const auto apply = [=](auto at) {
    for (int64_t j = 0; j < count; ++j) {
      if constexpr (std::is_same_v<M, uint8_t>)
        row[j] = row[j] * scale + (at(j) != 0 ? C(0) : -std::numeric_limits<C>::infinity());
      else
        row[j] = row[j] * scale + widen(at(j));
    }
  };
  if (p.mask.column == 1)
    apply([=](int64_t j) { return mask[j]; });
  else
    apply([=, step = p.mask.column](int64_t j) { return mask[j * step]; });
}

template <class T>
void score_row(const AttentionProblem& p, int64_t b, int64_t h, int64_t i, int64_t key, int64_t count,
               Compute<T>* row) {
  using C = Compute<T>;
  const C scale = static_cast<C>(p.scale);
  switch (p.mask_kind) {
    case MaskKind::None:
      for (int64_t j = 0; j < count; ++j) row[j] *= scale;
      return;
    case MaskKind::Seen:
      return mask_row<uint8_t>(p, b, h, i, key, count, row);
    case MaskKind::Added:
      return mask_row<T>(p, b, h, i, key, count, row);
    case MaskKind::AddedWide:
      return mask_row<C>(p, b, h, i, key, count, row);
  }
}

// How many of `count` keys from `key` on query `i` may see.
inline int64_t seen(const AttentionProblem& p, int64_t i, int64_t key, int64_t count) {
  return p.causal ? std::clamp<int64_t>(i - key + 1, 0, count) : count;
}

}  // namespace aicf::cpu
