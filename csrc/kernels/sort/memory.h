// How much memory a radix sort needs on CUDA, and where its parts lie: host code, in every build, since plans
// for a GPU are made without one.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace aicf {

constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
constexpr int64_t kBlockSort = 8192;  // most keys of a row that one block sorts

// Keys of a block, of which many sort a row: fewer where a chip has a processor for each block. On an H200
// 100,000 keys of 20 bits take 24 us so and 29 in larger tiles, and 500,000 take 47 and 38.
constexpr int64_t kSortTile = 4096, kSmallTile = 2048;
constexpr int64_t sort_tile(int64_t rows, int64_t n) {
  return rows * n <= 128 * kSmallTile ? kSmallTile : kSortTile;
}

// Digits of 9 bits where those are fewer: 17 bits are two of 9 or three of 8.
constexpr int digit_bits(int bits) {
  constexpr int kWider = kDigitBits + 1;
  return (bits + kWider - 1) / kWider < (bits + kDigitBits - 1) / kDigitBits ? kWider : kDigitBits;
}

// Parts of a row whose digits are counted side by side: enough for a chip, of 2048 keys or more.
constexpr int64_t sort_parts(int64_t rows, int64_t n) {
  constexpr int64_t kFewestKeys = 2048, kBlocks = 128;
  const int64_t of_row = (kBlocks + rows - 1) / std::max<int64_t>(rows, 1);
  return std::max<int64_t>(std::min((n + kFewestKeys - 1) / kFewestKeys, of_row), 1);
}

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

// Of `rows` sorts of n keys each by their lowest `bits`, side by side.
template <class Key>
struct SortMemory {
  int64_t rows, n, tile, tiles, parts;
  int bits_per_pass, passes;
  Key* keys[2];  // a pass reads one of two and writes the other; the last pass writes neither
  uint32_t* values[2];
  uint32_t* counts;     // counts[pass][row][part][digit]
  uint32_t* states[2];  // states[row][tile][digit]; a pass uses one of two and resets the other
  uint32_t* tickets;    // of each pass: how many of its blocks have begun

  SortMemory(WorkspaceParts& memory, int64_t rows, int64_t n, int bits)
      : rows(rows),
        n(n),
        tile(sort_tile(rows, n)),
        tiles((n + tile - 1) / tile),
        parts(sort_parts(rows, n)),
        bits_per_pass(digit_bits(bits)),
        passes((bits + bits_per_pass - 1) / bits_per_pass) {
    const int64_t digits = int64_t{1} << bits_per_pass;
    for (int i = 0; i < 2; ++i) {
      const bool is_used = i < passes - 1;
      keys[i] = memory.take<Key>(is_used ? rows * n : 0);
      values[i] = memory.take<uint32_t>(is_used ? rows * n : 0);
      states[i] = memory.take<uint32_t>(i < passes ? rows * tiles * digits : 0);
    }
    counts = memory.take<uint32_t>(passes * rows * parts * digits);
    tickets = memory.take<uint32_t>(passes);
  }
};

}  // namespace aicf
