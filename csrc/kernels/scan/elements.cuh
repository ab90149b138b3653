// What the kernels of scan on CUDA read and write, and how lanes of a warp hand on states.
#pragma once
#include "kernels/common/launch.cuh"
#include "kernels/common/numeric.cuh"
#include "kernels/scan/rules.h"

namespace aicf::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;

template <class T, bool = std::is_integral_v<T>>
struct ValueType {
  using type = int64_t;
};
template <class T>
struct ValueType<T, false> {
  using type = Compute<T>;
};
template <class T>
using Value = typename ValueType<T>::type;

// The elements of T of a scan, and its results of Y.
template <class Rule_, class T, class Y>
struct Elements {
  using Rule = Rule_;
  using Element = T;
  using Result = Y;
  const T *x, *factor;
  Y* y;
  int64_t n, inner;
  bool reverse;

  // Of the element after `step` others.
  __device__ __forceinline__ int64_t place(int64_t step) const { return reverse ? n - 1 - step : step; }
  // The state that an element at `place` begins with; its factor counts where the rule has factors.
  static __device__ __forceinline__ typename Rule::State begun(T x, T factor, int64_t place) {
    if constexpr (Rule::kHasFactor)
      return Rule::of(widened(x), widened(factor), place);
    else
      return Rule::of(widened(x), Value<T>(0), place);
  }
  static __device__ __forceinline__ Y result(typename Rule::State state) {
    const auto value = Rule::value(state);
    if constexpr (std::is_integral_v<Y>)
      return static_cast<Y>(value);
    else
      return narrow<Y>(value);
  }

 private:
  static __device__ __forceinline__ Value<T> widened(T value) {
    if constexpr (std::is_integral_v<T>)
      return value;
    else
      return widen(value);
  }
};

// A state of the lane `from`, or of the lane `distance` in front.
template <class State, class Move>
__device__ __forceinline__ State moved(State state, Move&& move) {
  if constexpr (std::is_arithmetic_v<State>)
    return move(state);
  else
    return state.each(move);
}
template <class State>
__device__ __forceinline__ State of_lane(State state, int from) {
  return moved(state, [=](auto number) { return __shfl_sync(kAllLanes, number, from); });
}
template <class State>
__device__ __forceinline__ State of_lane_in_front(State state, int distance) {
  return moved(state, [=](auto number) { return __shfl_up_sync(kAllLanes, number, distance); });
}

// The states of the lanes in front joined with this one's, of the first `lanes` of a warp.
template <class Rule, class State>
__device__ __forceinline__ State up_to_here(State state, int lanes = kWarp) {
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    if (distance >= lanes) break;  // the same for all lanes
    const State both = Rule::joined(of_lane_in_front(state, distance), state);
    if (static_cast<int>(threadIdx.x % kWarp) >= distance) state = both;
  }
  return state;
}

}  // namespace aicf::cuda
