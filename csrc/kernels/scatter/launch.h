// Launchers of scatter_add and scatter_rows, and what they know of a use.
#pragma once
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

// y = x, then y[index[i]] is reduced with src[i] for i = 0, 1, …; indices outside [0, rows) are left out. y
// may be the memory of x.
struct Scatter {
  DType dtype;
  Scatters kind;
  bool include_self;             // whether the row of x counts where a row has sources
  int64_t rows, columns;         // of x and y
  int64_t sources;               // rows of src
  int64_t index_step, src_step;  // elements from one source to the next
  const void* x;
  const int64_t* index;
  const void* src;
  void* y;
};

// All of one launch; of a scatter_rows there is one.
std::vector<Scatter> scatters_of(const OpDesc& op);
Scatter scatter_of(const OpDesc& op);  // the first

size_t scatter_cpu_workspace(const OpDesc& op);  // bytes
size_t scatter_sorted_workspace(const OpDesc& op);
size_t scatter_last_workspace(const OpDesc& op);

Status scatter_cpu(const std::vector<Scatter>& scatters, const LaunchContext& ctx);
Status scatter_cuda(const std::vector<Scatter>& scatters, const LaunchContext& ctx);
Status scatter_sorted(const Scatter& s, const LaunchContext& ctx);
Status scatter_last_cpu(const Scatter& s, const LaunchContext& ctx);
Status scatter_last_cuda(const Scatter& s, const LaunchContext& ctx);

constexpr int kFewSources = 4096;  // that scatter_cuda takes: sorting them takes longer than to look at all

}  // namespace aicf
