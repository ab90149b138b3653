// What a scan keeps of the elements that it has walked, for both devices: how one element begins, and how
// what is in front is joined with what is behind. V is the type that values are computed in. It has no
// branches, not even around an exponential, so that several joins are computed at once. A state of several
// numbers applies f to `each` of them.
#pragma once
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/eltwise/ops.h"  // AICF_HD
#include "kernels/scan/launch.h"

namespace aicf {

// Integers wrap.
template <class V>
AICF_HD V plus(V a, V b) {
  if constexpr (std::is_floating_point_v<V>)
    return a + b;
  else
    return static_cast<V>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
template <class V>
AICF_HD V times(V a, V b) {
  if constexpr (std::is_floating_point_v<V>)
    return a * b;
  else
    return static_cast<V>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

template <class V>
struct SumScan {
  using State = V;
  static constexpr bool kHasFactor = false, kIsPlace = false;
  AICF_HD static State none() { return 0; }
  AICF_HD static State of(V x, V, int64_t) { return x; }
  AICF_HD static State joined(State before, State behind) { return plus(before, behind); }
  AICF_HD static V value(State s) { return s; }
};

template <class V>
struct ProductScan : SumScan<V> {
  AICF_HD static V none() { return 1; }
  AICF_HD static V joined(V before, V behind) { return times(before, behind); }
};

// log(sum of exp(x)): the largest of them, and the sum of the others' exponentials over that of the largest.
template <class V>
struct LogAddExpScan {
  struct State {
    V largest, rest;
    template <class F>
    AICF_HD State each(F&& f) const {
      return {f(largest), f(rest)};
    }
  };
  static constexpr bool kHasFactor = false, kIsPlace = false;
  AICF_HD static State none() { return {kLeast, -1}; }
  AICF_HD static State of(V x, V, int64_t) { return {x, 0}; }
  AICF_HD static State joined(State a, State b) {
    const bool first = a.largest >= b.largest;  // a NaN is the largest
    const State high = first ? a : b, low = first ? b : a;
    const V distance = low.largest == high.largest ? V(0) : low.largest - high.largest;
    return {high.largest, high.rest + (1 + low.rest) * static_cast<V>(exp(distance))};
  }
  AICF_HD static V value(State s) { return s.largest + static_cast<V>(log1p(s.rest)); }

 private:
  static constexpr V kLeast = -std::numeric_limits<V>::infinity();
};

// h' = factor h + x
template <class V>
struct LinearScan {
  struct State {
    V factor, sum;
    template <class F>
    AICF_HD State each(F&& f) const {
      return {f(factor), f(sum)};
    }
  };
  static constexpr bool kHasFactor = true, kIsPlace = false;
  AICF_HD static State none() { return {1, 0}; }
  AICF_HD static State of(V x, V factor, int64_t) { return {factor, x}; }
  // A product of factors that is beyond the range of V leaves the 0 in front of it.
  AICF_HD static State joined(State before, State behind) {
    const bool stays = before.sum == 0 && (behind.factor > kLargest || behind.factor < -kLargest);
    return {before.factor * behind.factor, stays ? behind.sum : behind.factor * before.sum + behind.sum};
  }
  AICF_HD static V value(State s) { return s.sum; }

 private:
  static constexpr V kLargest = std::numeric_limits<V>::max();
};

// h' = exp(factor) h + x: the factors of neighbours are added, so that their product is rounded once.
template <class V>
struct ExpLinearScan : LinearScan<V> {
  using State = typename LinearScan<V>::State;
  AICF_HD static State none() { return {0, 0}; }
  AICF_HD static State joined(State before, State behind) {
    const V factor = before.sum == 0 ? V(0) : behind.factor;  // a 0 stays one
    return {before.factor + behind.factor, static_cast<V>(exp(factor)) * before.sum + behind.sum};
  }
};

// The sum since the last element whose factor is 0; what is in front of that one is not multiplied by it.
template <class V>
struct SegmentSumScan : LinearScan<V> {
  using State = typename LinearScan<V>::State;
  AICF_HD static State joined(State before, State behind) {
    if (behind.factor == 0) return behind;
    return {before.factor == 0 ? V(0) : V(1), before.sum + behind.sum};
  }
};

// The place of the last element that no element up to it exceeds; a NaN exceeds all.
template <class V, bool largest>
struct PlaceScan {
  struct State {
    V extreme;
    int64_t place;
    template <class F>
    AICF_HD State each(F&& f) const {
      return {f(extreme), f(place)};
    }
  };
  static constexpr bool kHasFactor = false, kIsPlace = true;
  AICF_HD static State none() { return {0, -1}; }
  AICF_HD static State of(V x, V, int64_t place) { return {x, place}; }
  AICF_HD static State joined(State before, State behind) {
    const bool wins = largest ? behind.extreme >= before.extreme : behind.extreme <= before.extreme;
    const bool is_nan = behind.extreme != behind.extreme;
    const bool is_taken = (before.place < 0) | ((behind.place >= 0) & (wins | is_nan));
    return is_taken ? behind : before;
  }
  AICF_HD static int64_t value(State s) { return s.place; }
};

template <class Rule>
struct RuleTag {
  using type = Rule;
};

// Calls f(RuleTag<Rule>{}).
template <class V, class F>
Status with_rule(Scans kind, F&& f) {
  switch (kind) {
    case Scans::Sum:
      return f(RuleTag<SumScan<V>>{});
    case Scans::Prod:
      return f(RuleTag<ProductScan<V>>{});
    case Scans::ArgMax:
      return f(RuleTag<PlaceScan<V, true>>{});
    case Scans::ArgMin:
      return f(RuleTag<PlaceScan<V, false>>{});
    case Scans::LogAddExp:
      if constexpr (std::is_floating_point_v<V>) return f(RuleTag<LogAddExpScan<V>>{});
      break;
    case Scans::Linear:
      if constexpr (std::is_floating_point_v<V>) return f(RuleTag<LinearScan<V>>{});
      break;
    case Scans::ExpLinear:
      if constexpr (std::is_floating_point_v<V>) return f(RuleTag<ExpLinearScan<V>>{});
      break;
    case Scans::SegmentSum:
      if constexpr (std::is_floating_point_v<V>) return f(RuleTag<SegmentSumScan<V>>{});
  }
  return Status::invalid("no scan of these elements");
}

}  // namespace aicf
