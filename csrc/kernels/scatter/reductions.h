// The reductions of a scatter, for both devices: the value of no element, and how two values are one.
#pragma once
#include <limits>

#include "kernels/scatter/launch.h"

namespace aicf {

template <class C>
struct SumOf {
  static constexpr C kNone = 0;
  AICF_HD static C of(C a, C b) { return a + b; }
};
template <class C>
struct ProductOf {
  static constexpr C kNone = 1;
  AICF_HD static C of(C a, C b) { return a * b; }
};
template <class C>
struct LargestOf {
  static constexpr C kNone = -std::numeric_limits<C>::infinity();
  AICF_HD static C of(C a, C b) { return a > b || a != a ? a : b; }
};
template <class C>
struct SmallestOf {
  static constexpr C kNone = std::numeric_limits<C>::infinity();
  AICF_HD static C of(C a, C b) { return a < b || a != a ? a : b; }
};

template <class Reduction>
struct ReductionTag {
  using type = Reduction;
};

// Calls f(ReductionTag<R>{}) for a kind that is not Last, of values of type C.
template <class C, class F>
Status with_reduction(Scatters kind, F&& f) {
  switch (kind) {
    case Scatters::Sum:
      return f(ReductionTag<SumOf<C>>{});
    case Scatters::Prod:
      return f(ReductionTag<ProductOf<C>>{});
    case Scatters::Max:
      return f(ReductionTag<LargestOf<C>>{});
    case Scatters::Min:
      return f(ReductionTag<SmallestOf<C>>{});
    default:
      return Status::invalid("no reduction");
  }
}

}  // namespace aicf
