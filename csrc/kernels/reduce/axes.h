// A sum over some dimensions of a contiguous tensor, as both devices see it: neighbouring dimensions that are
// all kept or all summed are merged, and dimensions of size 1 are dropped.
#pragma once
#include <cstdint>

#include "op/variant.h"

namespace aicf {

inline const Attr<std::vector<int64_t>> kDims{"dims", std::nullopt};
constexpr Attr<double> kDivisor{"divisor", 1.0};

struct Axis {
  int64_t size;
  int64_t stride;  // elements of x
};

// y[i] = (sum over j of x[i, j]) / divisor: i runs over the kept axes, j over the summed ones, in x's order,
// last axis fastest. Kept and summed axes alternate in x, so there are at most kMaxRank / 2 of each.
struct SumAxes {
  int kept_count, summed_count;
  Axis kept[kMaxRank / 2], summed[kMaxRank / 2];
  int64_t kept_size, summed_size;  // number of results, number of terms of each
  bool inner_summed;  // whether x's fastest axis is summed (rows) or kept (columns); true without any axis
};

SumAxes sum_axes(const OpDesc& op);

}  // namespace aicf
