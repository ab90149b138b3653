// scan on CUDA. Where n has neighbours (rows) a warp or a block walks it, 32 elements side by side; else a
// thread does, beside those of the other columns. Few and long ones are divided: the states of all chunks are
// found first. The order in which states are joined follows from the shape.
#pragma once
#include "kernels/common/launch.cuh"
#include "kernels/common/numeric.cuh"
#include "kernels/scan/rules.h"

namespace aicf::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kScanThreads = 256;
constexpr int kScanItems = 4;  // of a lane at once

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
  const T *x, *factor;
  Y* y;
  int64_t n, inner;
  bool reverse;

  // Of the element after `step` others; `first` is the place of the first of n.
  __device__ __forceinline__ int64_t place(int64_t step) const { return reverse ? n - 1 - step : step; }
  __device__ __forceinline__ typename Rule::State load(int64_t first, int64_t step) const {
    const int64_t i = place(step), at = first + i * inner;
    Value<T> f = 0;
    if constexpr (Rule::kHasFactor) f = loaded(factor[at]);
    return Rule::of(loaded(x[at]), f, i);
  }
  __device__ __forceinline__ void store(int64_t first, int64_t step, typename Rule::State state) const {
    const auto value = Rule::value(state);
    const int64_t at = first + place(step) * inner;
    if constexpr (std::is_integral_v<Y>)
      y[at] = static_cast<Y>(value);
    else
      y[at] = narrow<Y>(value);
  }

 private:
  static __device__ __forceinline__ Value<T> loaded(T value) {
    if constexpr (std::is_integral_v<T>)
      return value;
    else
      return widen(value);
  }
};

// A state of the lane `from`, or of the lane `distance` in front.
template <class State, class Move>
__device__ __forceinline__ State moved(State state, Move&& move) {
  static_assert(sizeof(State) % 4 == 0);
  constexpr int kWords = sizeof(State) / 4;
  int words[kWords];
  memcpy(words, &state, sizeof(State));
#pragma unroll
  for (int& word : words) word = move(word);
  memcpy(&state, words, sizeof(State));
  return state;
}
template <class State>
__device__ __forceinline__ State of_lane(State state, int from) {
  return moved(state, [=](int word) { return __shfl_sync(kAllLanes, word, from); });
}

// The states of the lanes in front joined with this one's.
template <class Rule, class State>
__device__ __forceinline__ State up_to_here(State state) {
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const State before = moved(state, [=](int word) { return __shfl_up_sync(kAllLanes, word, distance); });
    if (static_cast<int>(threadIdx.x % kWarp) >= distance) state = Rule::joined(before, state);
  }
  return state;
}

// kWarps warps have a chunk of a row: they write its results, or leave its state in states[row][chunk].
template <class Given, int kWarps>
__global__ void __launch_bounds__(kScanThreads)
    scan_rows_kernel(Given given, int64_t rows, int64_t chunk, int64_t chunks,
                     typename Given::Rule::State* states, bool writes, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  using Rule = typename Given::Rule;
  using State = typename Rule::State;
  constexpr int kGroups = kScanThreads / kWarp / kWarps;
  __shared__ State of_warps[kWarps];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp % kWarps;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kGroups + threadIdx.x / kWarp / kWarps;
  if (item >= rows * chunks) return;  // the same for all threads of a group
  const int64_t row = item / chunks, number = item % chunks;
  State carry = Rule::none();
  for (int64_t first = 0; writes && first < number; first += kWarp) {
    const State state = first + lane < number ? states[row * chunks + first + lane] : Rule::none();
    carry = Rule::joined(carry, of_lane(up_to_here<Rule>(state), kWarp - 1));
  }
  const int64_t end = min(given.n, (number + 1) * chunk);
  for (int64_t begin = number * chunk; begin < end; begin += kWarps * kScanItems * kWarp) {
    const int64_t first = begin + warp * (kScanItems * kWarp) + lane;
    State own[kScanItems];
#pragma unroll
    for (int k = 0; k < kScanItems; ++k)
      own[k] = first + k * kWarp < end ? given.load(row * given.n, first + k * kWarp) : Rule::none();
    State before = carry, total = Rule::none();
#pragma unroll
    for (int k = 0; k < kScanItems; ++k) {
      own[k] = up_to_here<Rule>(own[k]);
      if (k > 0) own[k] = Rule::joined(total, own[k]);
      total = of_lane(own[k], kWarp - 1);
    }
    if constexpr (kWarps > 1) {
      if (lane == 0) of_warps[warp] = total;
      __syncthreads();
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        if (w == warp) before = carry;
        carry = Rule::joined(carry, of_warps[w]);
      }
      __syncthreads();
    } else {
      carry = Rule::joined(carry, total);
    }
#pragma unroll
    for (int k = 0; k < kScanItems; ++k)
      if (writes && first + k * kWarp < end)
        given.store(row * given.n, first + k * kWarp, Rule::joined(before, own[k]));
  }
  if (!writes && lane == 0 && warp == 0) states[item] = carry;
}

// A thread has a chunk of a column: states[outer][chunk][column].
template <class Given>
__global__ void __launch_bounds__(kScanThreads)
    scan_columns_kernel(Given given, int64_t items, int64_t chunk, int64_t chunks,
                        typename Given::Rule::State* states, bool writes, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  using Rule = typename Given::Rule;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kScanThreads + threadIdx.x;
  if (item >= items) return;
  const int64_t column = item % given.inner, number = item / given.inner % chunks;
  const int64_t first = item / given.inner / chunks * given.n * given.inner + column;
  auto state = writes && number > 0 ? states[item - given.inner] : Rule::none();
  const int64_t end = min(given.n, (number + 1) * chunk);
#pragma unroll 4
  for (int64_t step = number * chunk; step < end; ++step) {
    state = Rule::joined(state, given.load(first, step));
    if (writes) given.store(first, step, state);
  }
  if (!writes) states[item] = state;
}

// Each state joined with those of the chunks in front.
template <class Rule>
__global__ void __launch_bounds__(kScanThreads)
    join_states_kernel(typename Rule::State* states, int64_t columns, int64_t inner, int64_t chunks,
                       const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kScanThreads + threadIdx.x;
  if (item >= columns) return;
  auto* own = states + item / inner * chunks * inner + item % inner;
  auto state = Rule::none();
#pragma unroll 8
  for (int64_t number = 0; number < chunks; ++number) {
    state = Rule::joined(state, own[number * inner]);
    own[number * inner] = state;
  }
}

template <class Rule, class T>
Status scan_with(const Scan& s, const LaunchContext& ctx) {
  using Y = std::conditional_t<Rule::kIsPlace, int64_t, T>;
  using Given = Elements<Rule, T, Y>;
  const Given given{static_cast<const T*>(s.x),
                    static_cast<const T*>(s.factor),
                    static_cast<Y*>(s.y),
                    s.n,
                    s.inner,
                    s.reverse};
  auto* states = static_cast<typename Rule::State*>(ctx.workspace);
  const ScanChunks parts(s);
  const auto blocks = [](int64_t items, int64_t each) {
    return static_cast<unsigned>(ceil_div<int64_t>(items, each));
  };
  if (s.inner == 1) {
    constexpr int kWarps = kScanThreads / kWarp;
    if (s.n <= ScanChunks::kOfWarp)
      return launch(ctx, blocks(s.outer, kWarps), kScanThreads, 0, scan_rows_kernel<Given, 1>, given, s.outer,
                    parts.chunk, parts.chunks, states, true, ctx.predicate);
    for (const bool writes : {false, true})
      if (writes || parts.chunks > 1)
        AICF_TRY(launch(ctx, blocks(s.outer * parts.chunks, 1), kScanThreads, 0,
                        scan_rows_kernel<Given, kWarps>, given, s.outer, parts.chunk, parts.chunks, states,
                        writes, ctx.predicate));
    return Status::ok();
  }
  const int64_t columns = s.outer * s.inner, items = columns * parts.chunks;
  for (const bool writes : {false, true}) {
    if (!writes && parts.chunks == 1) continue;
    AICF_TRY(launch(ctx, blocks(items, kScanThreads), kScanThreads, 0, scan_columns_kernel<Given>, given,
                    items, parts.chunk, parts.chunks, states, writes, ctx.predicate));
    if (!writes)
      AICF_TRY(launch(ctx, blocks(columns, kScanThreads), kScanThreads, 0, join_states_kernel<Rule>, states,
                      columns, s.inner, parts.chunks, ctx.predicate));
  }
  return Status::ok();
}

template <class T>
Status scan_numbers(const Scan& s, const LaunchContext& ctx) {
  return with_rule<Value<T>>(s.kind,
                             [&](auto tag) { return scan_with<typename decltype(tag)::type, T>(s, ctx); });
}

}  // namespace aicf::cuda
