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

// What an epilogue reads of one product beside it, where it lies by rows: the CPU fetches it ahead.
struct Beside {
  static constexpr int kMost = 4;
  struct Operand {
    const char* data;
    int64_t pitch, size;  // bytes from row to row, and of an element
  };

  Operand operands[kMost]{};
  int count = 0;

  void add(const void* data, int64_t leading, int64_t size) {
    if (count < kMost) operands[count++] = {static_cast<const char*>(data), leading * size, size};
  }
};

// A strip's sums are kStripRows x 2 vectors; with two of b and one of a they fill the registers.
#if defined(__AVX512F__)
constexpr int kLanes = 16, kStripRows = 14;
#elif defined(AICF_MICRO_KERNEL)
constexpr int kLanes = 8, kStripRows = 6;
#else
constexpr int kLanes = 4, kStripRows = 6;
#endif
constexpr int kStripColumns = 2 * kLanes;
constexpr int64_t kDepth = 512;  // of k that is packed at once: a strip of rows stays in the first cache
// From row to row of a strip that lies by rows: not a power of two, so that the rows do not share cache sets.
constexpr int64_t kStripPitch = kDepth + 16;

using Vector __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias)) = float;

inline Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
inline void store(float* to, Vector x) { *reinterpret_cast<Vector*>(to) = x; }

// load_first and store_first: the first `count` lanes, the others of a vector are 0. load_between: lanes
// [low, high). Nothing beyond them is touched.
#if defined(__AVX512F__)
inline Vector everywhere(float x) { return _mm512_set1_ps(x); }
inline Vector multiply_add(Vector x, Vector y, Vector z) { return _mm512_fmadd_ps(x, y, z); }
inline __mmask16 first_lanes(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
inline Vector load_first(const float* from, int64_t count) {
  return _mm512_maskz_loadu_ps(first_lanes(count), from);
}
inline Vector load_between(const float* from, int64_t low, int64_t high) {
  return _mm512_maskz_loadu_ps(first_lanes(high) & ~first_lanes(low), from);
}
inline void store_first(float* to, Vector x, int64_t count) {
  _mm512_mask_storeu_ps(to, first_lanes(count), x);
}
#elif defined(AICF_MICRO_KERNEL)
inline Vector everywhere(float x) { return _mm256_set1_ps(x); }
inline Vector multiply_add(Vector x, Vector y, Vector z) { return _mm256_fmadd_ps(x, y, z); }
inline __m256i first_lanes(int64_t count) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
}
inline Vector load_first(const float* from, int64_t count) {
  return _mm256_maskload_ps(from, first_lanes(count));
}
inline Vector load_between(const float* from, int64_t low, int64_t high) {
  return _mm256_maskload_ps(from, _mm256_andnot_si256(first_lanes(low), first_lanes(high)));
}
inline void store_first(float* to, Vector x, int64_t count) {
  _mm256_maskstore_ps(to, first_lanes(count), x);
}
#else  // no processor of note: a product and a sum, each rounded
inline Vector everywhere(float x) { return x - Vector{}; }
inline Vector multiply_add(Vector x, Vector y, Vector z) { return x * y + z; }
inline Vector load_first(const float* from, int64_t count) {
  Vector x{};
  std::memcpy(&x, from, static_cast<size_t>(count) * sizeof(float));
  return x;
}
inline Vector load_between(const float* from, int64_t low, int64_t high) {
  Vector x{};
  for (int64_t i = low; i < high; ++i) x[i] = from[i];
  return x;
}
inline void store_first(float* to, Vector x, int64_t count) {
  std::memcpy(to, &x, static_cast<size_t>(count) * sizeof(float));
}
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
        for (int j = 0; j < kLanes; ++j) {
          const float* const row = b + (half + j) * leading + l;
          __builtin_prefetch(row + 4 * kLanes);  // the processor does not see so many rows coming
          rows[j] = load(row);
        }
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
  for (int64_t l = 0; l < depth; ++l, to += kStripRows)
    if (rows == kStripRows) {
      std::memcpy(to, a + l * leading, kStripRows * sizeof(float));
    } else {
      for (int64_t i = 0; i < kStripRows; ++i) to[i] = i < rows ? a[l * leading + i] : 0.0f;
    }
}

// Memory that will be read, `rows` rows of `bytes` with `step` from row to row.
struct Lines {
  const char* row = nullptr;
  int64_t step = 0, bytes = 0, rows = 0, at = 0;

  int64_t count() const { return rows * ((bytes + 63) / 64); }

  void fetch() {
    if (rows <= 0) return;
    __builtin_prefetch(row + at, 0, 2);
    at += 64;
    if (at < bytes) return;
    at = 0, row += step, --rows;
  }
};

// What is fetched from memory while something else is computed: what is packed next, a line at a time, and
// what the epilogue reads of the block that is computed, `each` lines of every operand.
struct Ahead {
  Lines next{}, beside[Beside::kMost]{};
  int count = 0;
  int64_t each = 1;

  bool idle() const { return next.rows <= 0 && count == 0; }

  void fetch() {
    next.fetch();
    for (int i = 0; i < count; ++i)
      for (int64_t line = 0; line < each; ++line) beside[i].fetch();
  }
};
constexpr int64_t kStepsPerLine = 8;  // along k, for each line that is fetched: some hundred cycles

// The part of the result that two strips make; `add`: to what is there.
struct Target {
  float* z;
  int64_t pitch;
  int64_t rows, columns;
  bool add;
};

// Elements along k that are `step` apart, if by columns, or neighbours.
struct Run {
  int64_t offset, length;
};

// A strip of a. It lies by rows, `step` elements from row to row, or by columns, `step` from column to
// column; along k all of it, or in runs.
struct Rows {
  const float* first;
  int64_t step;
  const Run* runs = nullptr;
  int64_t count = 0;
};

// A strip of b as pack_columns packs it. With `from` it is yet to be packed, from rows of `leading` elements:
// the first product with it does that on the way.
struct Columns {
  float* packed;
  const float* from;
  int64_t leading;
};

// `kRows` of the strip's rows and `kVectors` of its columns, target.rows and target.columns of them needed.
template <int kRows, int kVectors, bool kByColumns, bool kPacking>
[[gnu::noinline]] void multiply_rows(int64_t depth, Rows rows, Columns columns, const Target& target,
                                     Ahead& ahead) {
  for (int64_t i = 0; i < target.rows; ++i)
    for (int j = 0; j < kVectors * kLanes; j += 16) __builtin_prefetch(target.z + i * target.pitch + j, 1);
  const Run whole{0, depth};
  const Run* const runs = rows.runs ? rows.runs : &whole;
  const Run* const last_run = rows.runs ? runs + rows.count : runs + 1;
  const bool idle = ahead.idle();
  float* b = columns.packed;
  const float* from = columns.from;
  Vector sums[kRows][kVectors]{};
  for (const Run* run = runs; run < last_run; ++run) {
    const float* a = rows.first + run->offset;
    const int64_t steps = idle ? run->length : kStepsPerLine;
    for (int64_t start = 0; start < run->length; start += steps) {
      if (!idle) ahead.fetch();
      const int64_t end = start + steps < run->length ? start + steps : run->length;
      for (int64_t l = start; l < end; ++l, a += kByColumns ? rows.step : 1, b += kStripColumns) {
        const Vector left = load(kPacking ? from : b);
        const Vector right = kVectors > 1 ? load((kPacking ? from : b) + kLanes) : Vector{};
        if constexpr (kPacking) {
          store(b, left), store(b + kLanes, right);
          from += columns.leading;
          for (int j = 0; j < kStripColumns; j += 16) __builtin_prefetch(from + 16 * columns.leading + j);
        }
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) {
          const Vector x = everywhere(a[kByColumns ? i : i * rows.step]);
          sums[i][0] = multiply_add(x, left, sums[i][0]);
          if constexpr (kVectors > 1) sums[i][1] = multiply_add(x, right, sums[i][1]);
        }
      }
    }
  }
  if (target.rows == kRows && target.columns == kVectors * kLanes) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        float* to = target.z + i * target.pitch + v * kLanes;
        store(to, target.add ? load(to) + sums[i][v] : sums[i][v]);
      }
    return;
  }
  const int64_t last = target.columns - (kVectors - 1) * kLanes;  // of the last vector
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    if (i == target.rows) return;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      float* to = target.z + i * target.pitch + v * kLanes;
      const int64_t count = v < kVectors - 1 ? kLanes : last;
      store_first(to, target.add ? load_first(to, count) + sums[i][v] : sums[i][v], count);
    }
  }
}

// By the least of `kRows`, `kMore` that are enough.
template <int kVectors, bool kByColumns, bool kPacking, int kRows, int... kMore>
void multiply_strip(int64_t depth, Rows a, Columns b, const Target& target, Ahead& ahead) {
  if constexpr (sizeof...(kMore) > 0) {
    if (target.rows > kRows)
      return multiply_strip<kVectors, kByColumns, kPacking, kMore...>(depth, a, b, target, ahead);
  }
  multiply_rows<kRows, kVectors, kByColumns, kPacking>(depth, a, b, target, ahead);
}

template <int kVectors, bool kByColumns, bool kPacking>
void multiply_vectors(int64_t depth, Rows a, Columns b, const Target& target, Ahead& ahead) {
  if constexpr (kStripRows > 8) {
    multiply_strip<kVectors, kByColumns, kPacking, 4, 6, 8, 10, 11, 12, 13, kStripRows>(depth, a, b, target,
                                                                                        ahead);
  } else {
    multiply_strip<kVectors, kByColumns, kPacking, 4, kStripRows>(depth, a, b, target, ahead);
  }
}

// Strips of `depth` along k. Meanwhile `ahead` is fetched.
inline void multiply_strips(bool by_columns, int64_t depth, Rows a, Columns b, const Target& target,
                            Ahead& ahead) {
  if (b.from)
    return by_columns ? multiply_vectors<2, true, true>(depth, a, b, target, ahead)
                      : multiply_vectors<2, false, true>(depth, a, b, target, ahead);
  if (target.columns <= kLanes)
    return by_columns ? multiply_vectors<1, true, false>(depth, a, b, target, ahead)
                      : multiply_vectors<1, false, false>(depth, a, b, target, ahead);
  return by_columns ? multiply_vectors<2, true, false>(depth, a, b, target, ahead)
                    : multiply_vectors<2, false, false>(depth, a, b, target, ahead);
}

}  // namespace aicf::cpu
