// Loops over f16 and bf16 in three steps: widen some elements into an array, compute on floats, narrow the
// results. Each step vectorises where one loop over all three would not. For f32 and f64 the steps are the
// memory itself, all of it at once.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/common/cpu_types.h"

namespace aicf::cpu {

template <class T>
constexpr bool kComputedAsIs = std::is_same_v<T, Compute<T>>;

// Elements per chunk.
template <class T>
constexpr int64_t kChunk = kComputedAsIs<T> ? std::numeric_limits<int64_t>::max() : 512;

// Room for one operand or result of a chunk.
template <class T>
class Chunk {
 public:
  // The elements of x, widened.
  const Compute<T>* load(const T* x, int64_t n) {
    if constexpr (kComputedAsIs<T>) {
      return x;
    } else {
      for (int64_t i = 0; i < n; ++i) values_[i] = widen(x[i]);
      return values_;
    }
  }

  // Where to compute what store() then writes to y.
  Compute<T>* target(T* y) {
    if constexpr (kComputedAsIs<T>) {
      return y;
    } else {
      return values_;
    }
  }

  void store(T* y, int64_t n) const {
    if constexpr (!kComputedAsIs<T>)
      for (int64_t i = 0; i < n; ++i) y[i] = narrow<T>(values_[i]);
  }

 private:
  Compute<T> values_[kComputedAsIs<T> ? 1 : kChunk<T>];
};

// Calls body(start, count) for consecutive parts of [0, n).
template <class T, class Body>
void for_each_chunk(int64_t n, Body body) {
  for (int64_t start = 0; start < n;) {
    const int64_t count = std::min(n - start, kChunk<T>);
    body(start, count);
    start += count;
  }
}

}  // namespace aicf::cpu
