// Small f32 matrix products, where a library spends more time on its way to a kernel than in it. Each element
// of the result is one chain of fused multiply-adds in the order of k.
#pragma once
#include <algorithm>
#include <type_traits>

#include "kernels/gemm/cpu_packed_gemm.h"
#include "kernels/gemm/cpu_tiles.h"

namespace aicf::cpu {

#ifdef AICF_MICRO_KERNEL

// Multiplications; elements of b with whole vectors of 16 in each row, whatever the processor has, and how
// many are transposed for two rows of a at most.
constexpr int64_t kMostSmall = 1 << 20, kMostSmallRight = 1 << 14, kMostTransposed = 1 << 12;

inline int64_t in_vectors(int64_t columns, int64_t lanes) { return (columns + lanes - 1) / lanes * lanes; }

inline bool is_small(int64_t rows, int64_t columns, int64_t depth, bool trans_b) {
  const int64_t most = trans_b && rows <= 2 ? kMostTransposed : kMostSmallRight;
  return depth <= most && columns <= most && in_vectors(columns, 16) * depth <= most && rows <= kMostSmall &&
         rows * columns * depth <= kMostSmall;
}

// Of the result the part of kRows rows and kVectors vectors of columns, the last of which may go beyond
// `columns`; so does `b`, from its first column there on.
template <int kRows, int kVectors, bool kByColumns>
void small_part(int64_t depth, const float* a, int64_t leading, const float* b, int64_t pitch, float* z,
                int64_t z_pitch, int64_t columns) {
  Vector sums[kRows][kVectors]{};
  for (int64_t l = 0; l < depth; ++l)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Vector right = load(b + l * pitch + v * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const Vector left = everywhere(a[kByColumns ? l * leading + i : i * leading + l]);
        sums[i][v] = multiply_add(left, right, sums[i][v]);
      }
    }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      store_first(z + i * z_pitch + v * kLanes, sums[i][v], std::min<int64_t>(kLanes, columns - v * kLanes));
}

// Eight sums at a time, as many as multiply-adds are under way: of eight rows, and of those that are left
// four or one, with more columns each.
template <bool kByColumns>
void small_product(const Operand<float>& a, const float* b, int64_t pitch, int64_t rows, int64_t columns,
                   int64_t depth, float* z, int64_t z_pitch) {
  const auto part = [&](auto height, auto width, int64_t i, int64_t j) {
    small_part<height, width, kByColumns>(depth, a.data + i * a.row_stride(), a.leading, b + j, pitch,
                                          z + i * z_pitch + j, z_pitch, columns - j);
  };
  const auto strip = [&](auto height, auto width, int64_t i) {
    constexpr std::integral_constant<int, 1> kOne;
    int64_t j = 0;
    for (; j + (width - 1) * kLanes < columns; j += width * kLanes) part(height, width, i, j);
    for (; j < columns; j += kLanes) part(height, kOne, i, j);
  };
  constexpr std::integral_constant<int, 8> kEight;
  constexpr std::integral_constant<int, 4> kFour;
  constexpr std::integral_constant<int, 2> kTwo;
  constexpr std::integral_constant<int, 1> kOne;
  int64_t i = 0;
  for (; i + 8 <= rows; i += 8) strip(kEight, kOne, i);
  for (; i + 4 <= rows; i += 4) strip(kFour, kTwo, i);
  for (; i < rows; ++i) strip(kOne, kFour, i);
}

// op(a) op(b), from the first elements of both on, to z; false without memory to pack b.
inline bool multiply_small(const Operand<float>& a, const Operand<float>& b, int64_t rows, int64_t columns,
                           int64_t depth, float* z, int64_t z_pitch) {
  const float* right = b.data;
  int64_t pitch = b.leading;
  if (b.transposed || columns % kLanes != 0) {
    pitch = in_vectors(columns, kLanes);
    float* const packed = packed_group().room(kMostSmallRight);
    if (!packed) return false;
    right = packed;
    for (int64_t l = 0; l < depth; ++l)
      if (b.transposed) {
        store(packed + (l + 1) * pitch - kLanes, Vector{});
        for (int64_t j = 0; j < columns; ++j) packed[l * pitch + j] = b.data[j * b.leading + l];
      } else {
        for (int64_t j = 0; j < columns; j += kLanes)
          store(packed + l * pitch + j,
                load_first(b.data + l * b.leading + j, std::min<int64_t>(kLanes, columns - j)));
      }
  }
  if (a.transposed) {
    small_product<true>(a, right, pitch, rows, columns, depth, z, z_pitch);
  } else {
    small_product<false>(a, right, pitch, rows, columns, depth, z, z_pitch);
  }
  return true;
}

#endif

}  // namespace aicf::cpu
