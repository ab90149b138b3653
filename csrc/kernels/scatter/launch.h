// Launchers of scatter_add, scatter_rows and sort_rows, and what they know of a use.
#pragma once
#include "kernels/eltwise/ops.h"  // AICF_HD
#include "op/variant.h"

namespace aicf {

// What becomes of the sources of a row.
enum class Scatters : int64_t { Last, Max, Min, Prod, Sum };
inline Names names_of(Scatters) {
  static const std::vector<const char*> names = {"last", "max", "min", "prod"};  // a sum is scatter_add
  return names;
}

constexpr Attr<Scatters> kKind{"kind", Scatters::Last};
constexpr Attr<bool> kIncludeSelf{"include_self", true};

constexpr Attr<int64_t> kRows{"rows", std::nullopt};
constexpr Attr<int64_t> kSourceRows{"source_rows", std::nullopt};

// Numbers of i64 or i32 at a distance in memory.
struct Places {
  const void* data = nullptr;
  int64_t step = 0;
  bool is_i32 = false;

  Places() = default;
  explicit Places(const TensorDesc& x) : data(x.data), step(x.strides[0]), is_i32(x.dtype == DType::I32) {}
  AICF_HD int64_t operator[](int64_t i) const {
    return is_i32 ? static_cast<const int32_t*>(data)[i * step] : static_cast<const int64_t*>(data)[i * step];
  }
};

// The row of src that source i is; -1 if src has none.
AICF_HD int64_t source_row(const Places& at, bool has_at, int64_t rows, int64_t i) {
  const int64_t row = has_at ? at[i] : i;
  return row >= rows ? rows - 1 : row >= 0 ? row : rows ? 0 : -1;
}

// y = x, then y[index[i]] is reduced with src[i], or src[at[i]], for i = 0, 1, …; indices outside [0, rows)
// are left out, and a place outside of src is its nearest row. y may be the memory of x.
struct Scatter {
  DType dtype;
  Scatters kind;
  bool include_self;           // whether the row of x counts where a row has sources
  int64_t rows, columns;       // of x and y
  int64_t sources;             // elements of index
  int64_t src_rows, src_step;  // src_step: elements from one row of src to the next
  const void* x;
  Places index, at;
  bool has_at;
  const void* src;
  void* y;

  bool is_sorted() const { return index.is_i32; }
  AICF_HD int64_t source(int64_t i) const { return source_row(at, has_at, src_rows, i); }
};

// The sources of a scatter in the order of their rows, those of one row in their own order: their rows in
// `keys` (`rows` where a source goes nowhere), and the rows of src that they are in `places`.
struct SortRows {
  int64_t rows, source_rows, sources;
  Places index, at;
  bool has_at;
  int32_t *keys, *places;

  AICF_HD int64_t source(int64_t i) const { return source_row(at, has_at, source_rows, i); }
  AICF_HD int64_t key(int64_t i) const {
    const int64_t row = index[i];
    return row < 0 || row >= rows || source(i) < 0 ? rows : row;
  }
};

// All of one launch; of a scatter_rows there is one.
std::vector<Scatter> scatters_of(const OpDesc& op);
Scatter scatter_of(const OpDesc& op);  // the first
SortRows sort_rows_of(const OpDesc& op);

size_t scatter_cpu_workspace(const OpDesc& op);  // bytes
size_t scatter_sorted_workspace(const OpDesc& op);
size_t scatter_last_workspace(const OpDesc& op);
size_t sort_rows_cpu_workspace(const OpDesc& op);
size_t sort_rows_cuda_workspace(const OpDesc& op);

Status scatter_cpu(const std::vector<Scatter>& scatters, const LaunchContext& ctx);
Status copied(const Scatter& s, const LaunchContext& ctx);  // y = x, unless they are the same memory
Status scatter_cuda(const std::vector<Scatter>& scatters, const LaunchContext& ctx);
Status scatter_sorted(const Scatter& s, const LaunchContext& ctx);
Status scatter_last_cpu(const Scatter& s, const LaunchContext& ctx);
Status scatter_last_cuda(const Scatter& s, const LaunchContext& ctx);
Status sort_rows_cpu(const SortRows& s, const LaunchContext& ctx);
Status sort_rows_cuda(const SortRows& s, const LaunchContext& ctx);

constexpr int kFewSources = 4096;  // that scatter_cuda takes: sorting them takes longer than to look at all

}  // namespace aicf
