// Products without a library, for every float dtype: tiles of the operands are widened into small arrays, so
// f16 and bf16 cost one conversion per use of a tile, and need no workspace.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/common/cpu_types.h"

namespace aicf::cpu {

// One tile of the result, and the part of k that is summed in a row before it meets the rest.
constexpr int64_t kTileRows = 32;
constexpr int64_t kTileColumns = 64;
constexpr int64_t kTileDepth = 64;

// A row-major matrix in memory, which op() transposes or not.
template <class T>
struct Operand {
  const T* data;
  bool transposed;
  int64_t leading;

  int64_t row_stride() const { return transposed ? 1 : leading; }
  int64_t column_stride() const { return transposed ? leading : 1; }
};

// The tile of rows i0.., columns j0.. of op(x), widened, to `to` with `pitch` elements between rows.
template <class T>
void widen_tile(const Operand<T>& x, int64_t i0, int64_t j0, int64_t rows, int64_t columns, int64_t pitch,
                Compute<T>* to) {
  const int64_t row_stride = x.row_stride(), column_stride = x.column_stride();
  const T* first = x.data + i0 * row_stride + j0 * column_stride;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      to[i * pitch + j] = widen(first[i * row_stride + j * column_stride]);
}

template <class C>
struct Tiles {
  C a[kTileRows * kTileDepth], b[kTileDepth * kTileColumns], part[kTileColumns];
};

// z += a b, each element's terms of this depth summed first.
template <class C>
void multiply_tiles(Tiles<C>& t, int64_t rows, int64_t columns, int64_t depth, C* z, int64_t pitch) {
  for (int64_t i = 0; i < rows; ++i) {
    std::fill_n(t.part, columns, C(0));
    for (int64_t l = 0; l < depth; ++l) {
      const C a = t.a[i * kTileDepth + l];
      for (int64_t j = 0; j < columns; ++j) t.part[j] += a * t.b[l * kTileColumns + j];
    }
    for (int64_t j = 0; j < columns; ++j) z[i * pitch + j] += t.part[j];
  }
}

// The tile of rows i.., columns j.. of op(a) op(b), at most kTileRows by kTileColumns, to z.
template <class T>
void product_tile(Tiles<Compute<T>>& t, const Operand<T>& a, const Operand<T>& b, int64_t i, int64_t j,
                  int64_t rows, int64_t columns, int64_t k, Compute<T>* z, int64_t pitch) {
  for (int64_t row = 0; row < rows; ++row) std::fill_n(z + row * pitch, columns, Compute<T>(0));
  for (int64_t l = 0; l < k; l += kTileDepth) {
    const int64_t depth = std::min(kTileDepth, k - l);
    widen_tile(a, i, l, rows, depth, kTileDepth, t.a);
    widen_tile(b, l, j, depth, columns, kTileColumns, t.b);
    multiply_tiles(t, rows, columns, depth, z, pitch);
  }
}

}  // namespace aicf::cpu
