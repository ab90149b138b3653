// A product as its device code sees it: sizes, where the matrices of a and b lie, which tile a block
// computes.
//
//   z[i, j] = sum over l < k of op(a)[i, l] op(b)[l, j], for each member of the batch, i < m, j < n
//
// What becomes of z is said by an epilogue, a functor `epilogue(member, z, row, column)`: `const C (&z)[W]`
// are the sums of W neighbours of `row`, the first of them in `column`, which W divides; C is Format::Wide.
// It is called once for each element, by any thread. The sums of op(a) along k are handed to a functor
// `totals(member, row, C)` where `totals.wanted()`.
#pragma once

namespace aicf::gemm {

// A batch has two levels, as that of [batch, heads, time, size] has.
struct Member {
  long long outer, inner;
};

// Row-major matrices: elements from row to row, and from member to member of each level.
struct Strides {
  long long leading, outer, inner;

  __device__ __forceinline__ long long start(const Member& member) const {
    return member.outer * outer + member.inner * inner;
  }
};

struct Problem {
  long long batch, inner_batch;  // products in all, and of the inner level, which divides them
  long long m, n, k;
  Strides a, b;
  // 0, or that of one product whose parts are the members: member i has the k steps from i k on, and the last
  // one as many as are left.
  long long whole_k = 0;

  __device__ __forceinline__ long long depth(const Member& member) const {
    if (whole_k == 0) return k;
    const long long left = whole_k - member.outer * k;
    return left < k ? left : k;
  }
  __device__ __forceinline__ Member member(long long index) const {
    if (inner_batch == 1) return {index, 0};
    return {index / inner_batch, index % inner_batch};
  }
};

// One product in numbers of 32 bits, which count all elements of an operand and of 256 rows more.
struct SmallProblem {
  struct Matrix {
    int leading;

    __device__ __forceinline__ long long start(const Member&) const { return 0; }
  };

  static constexpr int batch = 1;
  int m, n, k;
  Matrix a, b;

  __device__ __forceinline__ Member member(long long) const { return {0, 0}; }
};

// The tiles of BM x BN of all members, counted: those of a band of kBand rows of tiles follow each other, by
// columns, so that the blocks that run at once share rows of a and columns of b in the L2 cache. Without
// columns there is still one a row, for the totals.
template <int BM, int BN>
struct Tiles {
  static constexpr int kBand = 8;
  long long down, across, each, count;

  __device__ __forceinline__ explicit Tiles(const Problem& p)
      : down((p.m + BM - 1) / BM),
        across(p.n > 0 ? (p.n + BN - 1) / BN : 1),
        each(down * across),
        count(each * p.batch) {}

  struct Place {
    Member member;
    long long row, column;  // of the tile's first element
  };
  __device__ __forceinline__ Place place(const Problem& p, long long index) const {
    const long long in_batch = p.batch == 1 ? 0 : index / each, tile = index - in_batch * each;
    const long long band = tile / (kBand * across), top = band * kBand;
    const long long in_band = tile - top * across, rows = down - top;
    const long long column = rows >= kBand ? in_band / kBand : in_band / rows;
    const long long row = top + (in_band - column * (rows >= kBand ? kBand : rows));
    return {p.member(in_batch), row * BM, column * BN};
  }
};

// For results without totals.
struct NoTotals {
  __device__ __forceinline__ bool wanted() const { return false; }
  template <class C>
  __device__ __forceinline__ void operator()(const Member&, long long, C) const {}
};

}  // namespace aicf::gemm
