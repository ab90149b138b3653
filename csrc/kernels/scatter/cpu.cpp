// scatter_add and scatter_rows on the CPU: a list of sources for each row of the result, in their order, or
// the last of them; then rows side by side. Sources of short rows go to them at once.
#include <cstring>
#include <type_traits>

#include "kernels/common/cpu_parallel.h"
#include "kernels/common/cpu_types.h"
#include "kernels/scatter/reductions.h"

namespace aicf {
namespace {

using namespace cpu;

constexpr int64_t kEnd = -1;
constexpr int64_t kWide = 16;      // columns of a row that is copied for itself
constexpr int64_t kColumns = 512;  // of a row that are reduced together, in the first-level cache

// first[row] is the row's first source, and next[i] the one behind source i.
struct Sources {
  int64_t *first, *next;

  Sources(const Scatter& s, void* workspace) : first(static_cast<int64_t*>(workspace)), next(first + s.rows) {
    std::fill_n(first, s.rows, kEnd);
    for (int64_t i = s.sources - 1; i >= 0; --i) {
      const int64_t row = s.index[i];
      if (row < 0 || row >= s.rows || s.source(i) < 0) continue;
      next[i] = first[row];
      first[row] = i;
    }
  }
};

template <class T, class Reduction>
void reduce_row(const Scatter& s, const Sources& sources, int64_t row) {
  const T* x = static_cast<const T*>(s.x) + row * s.columns;
  T* y = static_cast<T*>(s.y) + row * s.columns;
  if (sources.first[row] == kEnd) {
    if (x != y) std::memcpy(y, x, static_cast<size_t>(s.columns) * sizeof(T));
    return;
  }
  Compute<T> found[kColumns];
  for (int64_t start = 0; start < s.columns; start += kColumns) {
    const int64_t count = std::min(kColumns, s.columns - start);
    for (int64_t j = 0; j < count; ++j) found[j] = s.include_self ? widen(x[start + j]) : Reduction::kNone;
    for (int64_t i = sources.first[row]; i != kEnd; i = sources.next[i]) {
      const T* src = static_cast<const T*>(s.src) + s.source(i) * s.src_step + start;
      for (int64_t j = 0; j < count; ++j) found[j] = Reduction::of(found[j], widen(src[j]));
    }
    for (int64_t j = 0; j < count; ++j) y[start + j] = narrow<T>(found[j]);
  }
}

// Whether each source is reduced with the result in memory, in the order of the sources, which is that of a
// list too. Sums of 16 bits would be rounded at each, and a row whose own elements do not count has no first.
bool is_direct(const Scatter& s) { return dtype_size(s.dtype) >= 4 && s.include_self && s.columns < kWide; }

template <class T, class Reduction>
void reduce_directly(const Scatter& s) {
  const T *x = static_cast<const T*>(s.x), *src = static_cast<const T*>(s.src);
  T* y = static_cast<T*>(s.y);
  const int64_t columns = s.columns;
  if (x != y)
    in_parallel(s.rows * columns, kGrainElements,
                [=](int64_t begin, int64_t end) { std::copy(x + begin, x + end, y + begin); });
  // By one thread: parts of the rows would each read all indices, with half of their branches mispredicted.
  for (int64_t i = 0; i < s.sources; ++i) {
    const int64_t row = s.index[i], source = s.source(i);
    if (row < 0 || row >= s.rows || source < 0) continue;
    for (int64_t j = 0; j < columns; ++j) {
      T& to = y[row * columns + j];
      to = Reduction::of(to, src[source * s.src_step + j]);
    }
  }
}

// Elements of one size. Short rows are written where they belong, one after the other; for long ones the last
// source of each is looked for, so that rows are copied side by side.
template <class Bits>
Status copy_last(const Scatter& s, int64_t* last) {
  const Bits *x = static_cast<const Bits*>(s.x), *src = static_cast<const Bits*>(s.src);
  Bits* y = static_cast<Bits*>(s.y);
  const int64_t columns = s.columns;
  const auto each_source = [&](auto&& put) {
    for (int64_t i = 0; i < s.sources; ++i)
      if (const int64_t row = s.index[i]; row >= 0 && row < s.rows) put(i, row);
  };
  if (columns < kWide) {
    if (x != y)
      in_parallel(s.rows * columns, kGrainElements,
                  [=](int64_t begin, int64_t end) { std::copy(x + begin, x + end, y + begin); });
    if (columns == 1)
      each_source([=](int64_t i, int64_t row) { y[row] = src[i]; });
    else
      each_source(
          [=](int64_t i, int64_t row) { std::copy_n(src + i * columns, columns, y + row * columns); });
    return Status::ok();
  }
  std::fill_n(last, s.rows, kEnd);
  each_source([=](int64_t i, int64_t row) { last[row] = i; });
  in_parallel(s.rows, grain_rows(columns), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const Bits* from = last[row] == kEnd ? x + row * columns : src + last[row] * columns;
      if (from != y + row * columns) std::copy_n(from, columns, y + row * columns);
    }
  });
  return Status::ok();
}

}  // namespace

size_t scatter_cpu_workspace(const OpDesc& op) {
  int64_t most = 0;
  for (const Scatter& s : scatters_of(op)) {
    if (s.kind == Scatters::Last)
      return s.columns < kWide ? 0 : static_cast<size_t>(s.rows) * sizeof(int64_t);
    if (!is_direct(s)) most = std::max(most, s.rows + s.sources);
  }
  return static_cast<size_t>(most) * sizeof(int64_t);
}

Status scatter_cpu(const std::vector<Scatter>& scatters, const LaunchContext& ctx) {
  Status status = Status::ok();
  for (const Scatter& s : scatters) {
    AICF_TRY(with_float_type(s.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      status = with_reduction<Compute<T>>(s.kind, [&](auto reduction) {
        using Reduction = typename decltype(reduction)::type;
        if constexpr (std::is_same_v<T, Compute<T>>)
          if (is_direct(s)) {
            reduce_directly<T, Reduction>(s);
            return Status::ok();
          }
        const Sources sources(s, ctx.workspace);
        in_parallel(s.rows, grain_rows(s.columns), [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) reduce_row<T, Reduction>(s, sources, row);
        });
        return Status::ok();
      });
    }));
  }
  return status;
}

// A counting sort (Knuth, The Art of Computer Programming 3, 5.2): where each row begins, then each source in
// its place.
Status sort_rows_cpu(const SortRows& s, const LaunchContext& ctx) {
  auto* begins = static_cast<int64_t*>(ctx.workspace);
  std::fill_n(begins, s.rows + 2, int64_t{0});
  for (int64_t i = 0; i < s.sources; ++i) ++begins[s.key(i) + 1];
  for (int64_t row = 0; row <= s.rows; ++row) begins[row + 1] += begins[row];
  for (int64_t i = 0; i < s.sources; ++i) {
    const int64_t key = s.key(i), to = begins[key]++;
    s.keys[to] = static_cast<int32_t>(key);
    s.places[to] = static_cast<int32_t>(std::max<int64_t>(s.source(i), 0));
  }
  return Status::ok();
}

size_t sort_rows_cpu_workspace(const OpDesc& op) {
  return static_cast<size_t>(sort_rows_of(op).rows + 2) * sizeof(int64_t);
}

Status scatter_last_cpu(const Scatter& s, const LaunchContext& ctx) {
  auto* last = static_cast<int64_t*>(ctx.workspace);
  switch (dtype_size(s.dtype)) {
    case 8:
      return copy_last<uint64_t>(s, last);
    case 4:
      return copy_last<uint32_t>(s, last);
    case 2:
      return copy_last<uint16_t>(s, last);
    default:
      return copy_last<uint8_t>(s, last);
  }
}

}  // namespace aicf
