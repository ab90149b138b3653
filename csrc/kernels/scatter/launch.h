// Launchers of scatter_add, and what they know of a use.
#pragma once
#include "op/variant.h"

namespace aicf {

// y = x, then y[index[i]] += src[i] for i = 0, 1, …; rows with an index outside [0, rows) are left out. y may
// be the memory of x.
struct ScatterAdd {
  DType dtype;
  int64_t rows, columns;  // of x and y
  int64_t sources;        // rows of src
  const void* x;
  const int64_t* index;
  const void* src;
  void* y;
};

ScatterAdd scatter_add_of(const OpDesc& op);
size_t scatter_add_cpu_workspace(const OpDesc& op);  // bytes
size_t scatter_add_sorted_workspace(const OpDesc& op);

Status scatter_add_cpu(const ScatterAdd& s, const LaunchContext& ctx);
Status scatter_add_cuda(const ScatterAdd& s, const LaunchContext& ctx);
Status scatter_add_sorted(const ScatterAdd& s, const LaunchContext& ctx);

}  // namespace aicf
