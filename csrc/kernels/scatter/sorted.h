// How much memory a sorted scatter_add needs, and where its parts lie: host code, in every build, since plans
// for a GPU are made without one.
#pragma once
#include <cstddef>
#include <cstdint>

#include "op/tensor_desc.h"

namespace aicf {

constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
constexpr int64_t kSortTile = 4096;  // keys of a block
constexpr int64_t kChunk = 256;      // sorted sources that one thread adds

constexpr int64_t sort_tiles(int64_t n) { return (n + kSortTile - 1) / kSortTile; }
constexpr int64_t sum_chunks(int64_t n) { return (n + kChunk - 1) / kChunk; }

// Keys are 0..rows.
constexpr int sort_passes(int64_t rows) {
  int passes = 1;
  while (rows >> passes * kDigitBits) ++passes;
  return passes;
}

struct SortMemory {
  uint32_t *keys[2], *values[2];  // of each source; a pass reads one of two and writes the other
  uint32_t *counts, *totals;      // counts[digit][tile], totals[digit]
  void* partials;  // of each chunk two rows: what goes on from the chunk in front, what goes on behind it
  size_t bytes;

  SortMemory(void* workspace, int64_t n, int64_t columns, DType dtype) {
    const auto begin = reinterpret_cast<uintptr_t>(workspace);
    size_t used = 0;
    const auto part = [&](int64_t count, size_t size) {
      const auto place = reinterpret_cast<void*>(begin + used);
      used += (static_cast<size_t>(count) * size + 255) / 256 * 256;
      return place;
    };
    for (uint32_t** each : {&keys[0], &keys[1], &values[0], &values[1]})
      *each = static_cast<uint32_t*>(part(n, sizeof(uint32_t)));
    counts = static_cast<uint32_t*>(part(sort_tiles(n) * kDigits, sizeof(uint32_t)));
    totals = static_cast<uint32_t*>(part(kDigits, sizeof(uint32_t)));
    partials = part(2 * sum_chunks(n) * columns, dtype == DType::F64 ? sizeof(double) : sizeof(float));
    bytes = used;
  }
};

}  // namespace aicf
