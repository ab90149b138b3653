// The inner part of an f32 matrix product on processors with fused multiply-add: a strip of rows of a times a
// strip of columns of b, both packed, in registers. Each element of the result is one chain of fused
// multiply-adds in the order of k, so its bits depend on neither the blocks nor the instruction set.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#include <immintrin.h>
#define AICF_MICRO_KERNEL 1
#endif

namespace aicf::cpu {

#ifdef AICF_MICRO_KERNEL

// A strip's sums are kStripRows x 2 vectors; with two of b and one of a they fill the registers.
#ifdef __AVX512F__
constexpr int kLanes = 16, kStripRows = 14;
#else
constexpr int kLanes = 8, kStripRows = 6;
#endif
constexpr int kStripColumns = 2 * kLanes;
constexpr int64_t kDepth = 512;  // of k that is packed at once: a strip of rows stays in the first cache
// From row to row of a strip that lies by rows: not a power of two, so that the rows do not share cache sets.
constexpr int64_t kStripPitch = kDepth + 16;

using Vector __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias)) = float;

inline Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
inline void store(float* to, Vector x) { *reinterpret_cast<Vector*>(to) = x; }

#ifdef __AVX512F__
inline Vector everywhere(float x) { return _mm512_set1_ps(x); }
inline Vector multiply_add(Vector x, Vector y, Vector z) { return _mm512_fmadd_ps(x, y, z); }
#else
inline Vector everywhere(float x) { return _mm256_set1_ps(x); }
inline Vector multiply_add(Vector x, Vector y, Vector z) { return _mm256_fmadd_ps(x, y, z); }
#endif

// The square matrix whose rows are given, transposed: blocks of 1, 2, 4 … columns change places.
inline void transpose(Vector* rows) {
  using Lanes __attribute__((vector_size(kLanes * sizeof(float)))) = int32_t;
#pragma GCC unroll 8
  for (int size = 1; size < kLanes; size *= 2) {
    Lanes low{}, high{};
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      low[i] = i & size ? kLanes + i - size : i;
      high[i] = i & size ? kLanes + i : i + size;
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if (i & size) continue;
      const Vector x = rows[i], y = rows[i + size];
      rows[i] = __builtin_shuffle(x, y, low);
      rows[i + size] = __builtin_shuffle(x, y, high);
    }
  }
}

// A strip of b, as [depth, kStripColumns] with zeros behind `columns`. `b` is its first element; it lies by
// rows of `leading` elements, or with `trans` by columns.
inline void pack_columns(const float* b, int64_t leading, bool trans, int64_t depth, int64_t columns,
                         float* to) {
  int64_t l = 0;
  if (columns == kStripColumns && !trans) {
    for (; l < depth; ++l)
      for (int j = 0; j < kStripColumns; j += kLanes)
        store(to + l * kStripColumns + j, load(b + l * leading + j));
  }
  if (columns == kStripColumns && trans) {
    for (; l + kLanes <= depth; l += kLanes)
      for (int half = 0; half < kStripColumns; half += kLanes) {
        Vector rows[kLanes];
#pragma GCC unroll 16
        for (int j = 0; j < kLanes; ++j) rows[j] = load(b + (half + j) * leading + l);
        transpose(rows);
#pragma GCC unroll 16
        for (int j = 0; j < kLanes; ++j) store(to + (l + j) * kStripColumns + half, rows[j]);
      }
  }
  for (; l < depth; ++l)
    for (int64_t j = 0; j < kStripColumns; ++j)
      to[l * kStripColumns + j] = j >= columns ? 0.0f : trans ? b[j * leading + l] : b[l * leading + j];
}

// A strip of a with zeros behind `rows`: as [kStripRows, kStripPitch], or with `trans`, where `a` lies by
// columns, as [depth, kStripRows]. No element changes its neighbours.
inline void pack_rows(const float* a, int64_t leading, bool trans, int64_t depth, int64_t rows, float* to) {
  if (!trans) {
    for (int64_t i = 0; i < kStripRows; ++i)
      if (i < rows) {
        std::memcpy(to + i * kStripPitch, a + i * leading, static_cast<size_t>(depth) * sizeof(float));
      } else {
        std::memset(to + i * kStripPitch, 0, static_cast<size_t>(depth) * sizeof(float));
      }
    return;
  }
  for (int64_t l = 0; l < depth; ++l)
    for (int64_t i = 0; i < kStripRows; ++i) to[l * kStripRows + i] = i < rows ? a[l * leading + i] : 0.0f;
}

// The part of the result that two strips make; `add`: to what is there.
struct Target {
  float* z;
  int64_t pitch;
  int64_t rows, columns;
  bool add;
};

// `kRows` of the strip's rows, target.rows of them needed; kRowStep and kStep lead from row to row and along
// k.
template <int kRows, int64_t kRowStep, int64_t kStep>
[[gnu::noinline]] void multiply_rows(int64_t depth, const float* a, const float* b, const Target& target) {
  Vector sums[kRows][2];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = Vector{};
  for (int64_t l = 0; l < depth; ++l, a += kStep, b += kStripColumns) {
    const Vector left = load(b), right = load(b + kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const Vector x = everywhere(a[i * kRowStep]);
      sums[i][0] = multiply_add(x, left, sums[i][0]);
      sums[i][1] = multiply_add(x, right, sums[i][1]);
    }
  }
  if (target.rows == kRows && target.columns == kStripColumns) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
      for (int half = 0; half < 2; ++half) {
        float* to = target.z + i * target.pitch + half * kLanes;
        store(to, target.add ? load(to) + sums[i][half] : sums[i][half]);
      }
    return;
  }
  float results[kRows][kStripColumns];
  std::memcpy(results, sums, sizeof results);
  for (int64_t i = 0; i < target.rows; ++i)
    for (int64_t j = 0; j < target.columns; ++j) {
      float& to = target.z[i * target.pitch + j];
      to = target.add ? to + results[i][j] : results[i][j];
    }
}

template <int64_t kRowStep, int64_t kStep>
void multiply_strip(int64_t depth, const float* a, const float* b, const Target& target) {
  if (target.rows <= 4) return multiply_rows<4, kRowStep, kStep>(depth, a, b, target);
  if constexpr (kStripRows > 8) {
    if (target.rows <= 8) return multiply_rows<8, kRowStep, kStep>(depth, a, b, target);
  }
  multiply_rows<kStripRows, kRowStep, kStep>(depth, a, b, target);
}

// Packed strips of `depth` along k; `trans_a` as pack_rows was told.
inline void multiply_strips(bool trans_a, int64_t depth, const float* a, const float* b,
                            const Target& target) {
  if (trans_a) return multiply_strip<1, kStripRows>(depth, a, b, target);
  multiply_strip<kStripPitch, 1>(depth, a, b, target);
}

#endif

}  // namespace aicf::cpu
