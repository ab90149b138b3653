// How a long sum is divided over blocks of a GPU. Host code, in every build: the workspace of the partial
// sums is part of a plan.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace aicf {

constexpr int64_t kLongestWarpRow = 1024;  // longer rows take a block each, others a warp

// `terms` in `parts` runs of `length` (the last may be shorter); each part's sum is written down and the
// parts are added in order. Depends on the sizes alone, so that every chip adds in the same order.
struct Split {
  int64_t parts, length;
};

// blocks: how many blocks one part takes. shortest: terms that are worth a block of their own. length becomes
// a multiple of `unit`. each: the blocks of a multiprocessor that are enough.
inline Split split_terms(int64_t terms, int64_t blocks, int64_t shortest, int64_t unit = 1,
                         int64_t each = 2) {
  constexpr int64_t kProcessors = 132;  // of a large chip
  const int64_t useful = (terms + shortest - 1) / shortest;
  const int64_t wanted = each * kProcessors / std::max<int64_t>(blocks, 1);
  const int64_t parts = std::max<int64_t>(1, std::min(useful, wanted));
  const int64_t even = (terms + parts - 1) / parts;
  const int64_t length = std::max<int64_t>(1, (even + unit - 1) / unit) * unit;
  return {std::max<int64_t>(1, (terms + length - 1) / length), length};
}

}  // namespace aicf
