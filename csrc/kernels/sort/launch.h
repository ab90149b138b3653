// Launchers of argsort, and what they know of a use.
#pragma once
#include "op/variant.h"

namespace aicf {

constexpr Attr<int64_t> kCount{"count", std::nullopt};
constexpr Attr<bool> kDescending{"descending", false};
constexpr Attr<int64_t> kFirst{"first", 0};

// What argsort_select_cuda can find, unless it is a single element of a row: first + count.
constexpr int64_t kMostSelected = 256;

// For each row of x the places of `count` elements of its order from the one at `first` on; equal ones keep
// theirs.
struct Argsort {
  DType dtype;
  int64_t rows, n, count, first;
  bool descending;
  const void* x;
  int64_t* index;
};

inline Argsort argsort_of(const OpDesc& op) {
  const TensorDesc& x = op.in("x");
  Argsort s;
  s.dtype = x.dtype;
  s.n = x.shape[x.rank - 1];
  s.rows = 1;
  for (int d = 0; d < x.rank - 1; ++d) s.rows *= x.shape[d];
  s.count = op.attrs.get(kCount);
  s.first = op.attrs.get(kFirst);
  s.descending = op.attrs.get(kDescending);
  s.x = x.data;
  s.index = op.outputs[0].ptr<int64_t>();
  return s;
}

Status argsort_cpu(const Argsort& s, const LaunchContext& ctx);
Status argsort_warps_cuda(const Argsort& s, const LaunchContext& ctx);   // a warp for each row
Status argsort_select_cuda(const Argsort& s, const LaunchContext& ctx);  // few elements of a row, in blocks
Status argsort_blocks_cuda(const Argsort& s, const LaunchContext& ctx);  // a block for each row
Status argsort_passes_cuda(const Argsort& s, const LaunchContext& ctx);  // launches for all rows

size_t argsort_passes_workspace(const OpDesc& op);

}  // namespace aicf
