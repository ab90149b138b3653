// scatter_add on the CPU: a list of sources for each row of the result, in their order; then rows side by
// side.
#include <cstring>

#include "kernels/common/cpu_parallel.h"
#include "kernels/common/cpu_types.h"
#include "kernels/scatter/launch.h"

namespace aicf {
namespace {

using namespace cpu;

constexpr int64_t kEnd = -1;
constexpr int64_t kColumns = 512;  // of a row that are added together, in the first-level cache

// first[row] is the row's first source, and next[i] the one behind source i.
struct Sources {
  int64_t *first, *next;

  Sources(const ScatterAdd& s, void* workspace)
      : first(static_cast<int64_t*>(workspace)), next(first + s.rows) {
    std::fill_n(first, s.rows, kEnd);
    for (int64_t i = s.sources - 1; i >= 0; --i) {
      const int64_t row = s.index[i];
      if (row < 0 || row >= s.rows) continue;
      next[i] = first[row];
      first[row] = i;
    }
  }
};

template <class T>
void add_row(const ScatterAdd& s, const Sources& sources, int64_t row) {
  const T* x = static_cast<const T*>(s.x) + row * s.columns;
  T* y = static_cast<T*>(s.y) + row * s.columns;
  if (sources.first[row] == kEnd) {
    if (x != y) std::memcpy(y, x, static_cast<size_t>(s.columns) * sizeof(T));
    return;
  }
  Compute<T> sums[kColumns];
  for (int64_t start = 0; start < s.columns; start += kColumns) {
    const int64_t count = std::min(kColumns, s.columns - start);
    for (int64_t j = 0; j < count; ++j) sums[j] = widen(x[start + j]);
    for (int64_t i = sources.first[row]; i != kEnd; i = sources.next[i]) {
      const T* src = static_cast<const T*>(s.src) + i * s.columns + start;
      for (int64_t j = 0; j < count; ++j) sums[j] += widen(src[j]);
    }
    for (int64_t j = 0; j < count; ++j) y[start + j] = narrow<T>(sums[j]);
  }
}

}  // namespace

size_t scatter_add_cpu_workspace(const OpDesc& op) {
  const ScatterAdd s = scatter_add_of(op);
  return static_cast<size_t>(s.rows + s.sources) * sizeof(int64_t);
}

Status scatter_add_cpu(const ScatterAdd& s, const LaunchContext& ctx) {
  const Sources sources(s, ctx.workspace);
  return with_float_type(s.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    in_parallel(s.rows, grain_rows(s.columns), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) add_row<T>(s, sources, row);
    });
  });
}

}  // namespace aicf
