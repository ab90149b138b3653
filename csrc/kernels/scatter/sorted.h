// How much memory a scatter of sorted sources needs, and where its parts lie: host code, in every build,
// since plans for a GPU are made without one.
#pragma once
#include "kernels/sort/memory.h"
#include "op/tensor_desc.h"

namespace aicf {

constexpr int64_t kChunk = 256;  // sorted sources that one block reduces

constexpr int64_t sum_chunks(int64_t n) { return (n + kChunk - 1) / kChunk; }

// Keys are 0..rows.
constexpr int bits_of_rows(int64_t rows) {
  int bits = 1;
  while (rows >> bits) ++bits;
  return bits;
}

struct SortedMemory {
  WorkspaceParts parts;
  SortMemory<uint32_t> sort;
  uint32_t *keys, *values;  // in order
  void* partials;  // of each chunk two rows: what goes on from the chunk in front, what goes on behind it

  SortedMemory(void* workspace, int64_t n, int64_t columns, DType dtype)
      : parts(workspace), sort(parts, 1, n) {
    keys = parts.take<uint32_t>(n);
    values = parts.take<uint32_t>(n);
    const int64_t count = 2 * sum_chunks(n) * columns;
    partials = dtype == DType::F64 ? static_cast<void*>(parts.take<double>(count)) : parts.take<float>(count);
  }
};

}  // namespace aicf
