// How much memory a scatter of sorted sources needs, and where its parts lie: host code, in every build,
// since plans for a GPU are made without one.
#pragma once
#include "kernels/scatter/launch.h"
#include "kernels/sort/memory.h"

namespace aicf {

constexpr int64_t kChunk = 256;  // sorted sources that one block reduces

constexpr int64_t sum_chunks(int64_t n) { return (n + kChunk - 1) / kChunk; }

// Keys are 0..rows.
constexpr int bits_of_rows(int64_t rows) {
  int bits = 1;
  while (rows >> bits) ++bits;
  return bits;
}

// Bytes of a sort of n sources by row. Few are sorted by one block, in its own memory.
inline size_t sort_workspace(int64_t rows, int64_t n) {
  WorkspaceParts parts(nullptr);
  if (n > kBlockSort) SortMemory<uint32_t>(parts, 1, n, bits_of_rows(rows));
  return parts.used;
}

struct SortedMemory {
  WorkspaceParts parts;
  void* partials;  // of each chunk two rows: what goes on from the chunk in front, what goes on behind it
  int32_t *keys = nullptr, *places = nullptr;  // in order, where they are not yet
  void* sort = nullptr;

  SortedMemory(void* workspace, const Scatter& s) : parts(workspace) {
    const int64_t count = 2 * sum_chunks(s.sources) * s.columns;
    partials =
        s.dtype == DType::F64 ? static_cast<void*>(parts.take<double>(count)) : parts.take<float>(count);
    if (s.is_sorted()) return;
    keys = parts.take<int32_t>(s.sources);
    places = parts.take<int32_t>(s.sources);
    sort = parts.take<char>(static_cast<int64_t>(sort_workspace(s.rows, s.sources)));
  }
};

}  // namespace aicf
