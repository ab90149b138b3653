// How much memory a radix sort needs on CUDA, and where its parts lie: host code, in every build, since plans
// for a GPU are made without one.
#pragma once
#include <cstddef>
#include <cstdint>

namespace aicf {

constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
constexpr int64_t kSortTile = 4096;  // keys of a block

constexpr int64_t sort_tiles(int64_t n) { return (n + kSortTile - 1) / kSortTile; }
constexpr int sort_passes(int bits) { return (bits + kDigitBits - 1) / kDigitBits; }

// Hands out parts of a workspace.
struct WorkspaceParts {
  uintptr_t begin;
  size_t used = 0;

  explicit WorkspaceParts(void* workspace) : begin(reinterpret_cast<uintptr_t>(workspace)) {}
  template <class T>
  T* take(int64_t count) {
    const auto place = reinterpret_cast<T*>(begin + used);
    used += (static_cast<size_t>(count) * sizeof(T) + 255) / 256 * 256;
    return place;
  }
};

// Of `rows` sorts of n keys each, side by side.
template <class Key>
struct SortMemory {
  Key* keys[2];  // a pass reads one of two and writes the other
  uint32_t* values[2];
  uint32_t *counts, *totals;  // counts[row][digit][tile], totals[row][digit]

  SortMemory(WorkspaceParts& parts, int64_t rows, int64_t n) {
    for (Key*& each : keys) each = parts.take<Key>(rows * n);
    for (uint32_t*& each : values) each = parts.take<uint32_t>(rows * n);
    counts = parts.take<uint32_t>(rows * kDigits * sort_tiles(n));
    totals = parts.take<uint32_t>(rows * kDigits);
  }
};

}  // namespace aicf
