// scan of rows on CUDA. A lane has kItems neighbours, so that all but 5 of its joins need no other lane. A
// warp has those of 32 lanes, and one or several warps walk a row, or a chunk of it, tile by tile.
#pragma once
#include "kernels/scan/elements.cuh"

namespace aicf::cuda {

constexpr int kMostThreads = ScanChunks::kMostWarps * kWarp;
static_assert(ScanChunks::kMostChunks <= kMostThreads);  // a thread reads the state of one
static_assert(ScanChunks::kWarpLanes == kWarp);

// What is in front of a lane in its group, and the whole group.
template <class State>
struct OfGroup {
  State before, total;
};

// The states of the threads of `warps` warps joined in their order. Several warps are a whole block, and hand
// on states through of_warps; the next call must have other memory, which saves a barrier.
template <class Rule, class State>
__device__ __forceinline__ OfGroup<State> join_group(State own, State* of_warps, int warps) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp % warps;
  const State here = up_to_here<Rule>(own);
  State before = of_lane_in_front(here, 1);
  if (lane == 0) before = Rule::none();
  if (warps == 1) return {before, of_lane(here, kWarp - 1)};
  if (lane == kWarp - 1) of_warps[warp] = here;
  __syncthreads();
  const State each = up_to_here<Rule>(lane < warps ? of_warps[lane] : Rule::none(), warps);
  const State front = of_lane(each, max(warp - 1, 0));
  if (warp > 0) before = Rule::joined(front, before);
  return {before, of_lane(each, warps - 1)};
}

// Of a lane the elements at `at`, 32 behind it, and so on, before `end`.
template <class Given, class T, int kItems>
__device__ __forceinline__ void read_elements(const Given& given, const T* row, int64_t at, int64_t end,
                                              T (&own)[kItems]) {
  const T* from = row + given.place(at);
  const int64_t stride = given.reverse ? -kWarp : kWarp;
#pragma unroll
  for (int k = 0; k < kItems; ++k) own[k] = at + k * kWarp < end ? from[k * stride] : T{};
}

// A lane gives elements at lane, 32 + lane, … of a warp's part and gets as many neighbours.
template <class T, int kItems>
__device__ __forceinline__ void to_neighbours(const T (&from)[kItems], T (&to)[kItems],
                                              unsigned char* staged) {
  const int lane = threadIdx.x % kWarp;
  __syncwarp();
#pragma unroll
  for (int k = 0; k < kItems; ++k) reinterpret_cast<T*>(staged)[k * kWarp + lane] = from[k];
  __syncwarp();
  const auto mine = reinterpret_cast<const Vec<T, kItems>*>(staged)[lane];
#pragma unroll
  for (int k = 0; k < kItems; ++k) to[k] = mine.at[k];
}

// The other way round.
template <class T, int kItems>
__device__ __forceinline__ void from_neighbours(T (&own)[kItems], unsigned char* staged) {
  const int lane = threadIdx.x % kWarp;
  Vec<T, kItems> mine;
#pragma unroll
  for (int k = 0; k < kItems; ++k) mine.at[k] = own[k];
  __syncwarp();
  reinterpret_cast<Vec<T, kItems>*>(staged)[lane] = mine;
  __syncwarp();
#pragma unroll
  for (int k = 0; k < kItems; ++k) own[k] = reinterpret_cast<const T*>(staged)[k * kWarp + lane];
}

// `warps` warps have a chunk of a row: they write its results, or leave its state in states[row][chunk].
template <class Given, int kItems>
__global__ void __launch_bounds__(kMostThreads)
    scan_rows_kernel(Given given, int64_t rows, int warps, int64_t chunk, int64_t chunks,
                     typename Given::Rule::State* states, bool writes, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  using Rule = typename Given::Rule;
  using State = typename Rule::State;
  using T = typename Given::Element;
  using Y = typename Given::Result;
  constexpr int kPart = kItems * kWarp;  // of a warp
  constexpr size_t kBytes = sizeof(T) > sizeof(Y) ? sizeof(T) : sizeof(Y);
  __shared__ __align__(kItems * kBytes) unsigned char staged[ScanChunks::kMostWarps][kPart * kBytes];
  __shared__ State of_warps[2][ScanChunks::kMostWarps];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp % warps;
  const int groups = static_cast<int>(blockDim.x) / kWarp / warps;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * groups + threadIdx.x / kWarp / warps;
  if (item >= rows * chunks) return;  // the same for all threads of a group
  const int64_t row = item / chunks, number = item % chunks, first = row * given.n;
  const int64_t begin = number * chunk + warp * kPart, end = min(given.n, (number + 1) * chunk);
  unsigned char* own_staged = staged[threadIdx.x / kWarp];
  T next_x[kItems], next_factor[kItems];
  const auto read = [&](int64_t part) {
    read_elements(given, given.x + first, part + lane, end, next_x);
    if constexpr (Rule::kHasFactor) read_elements(given, given.factor + first, part + lane, end, next_factor);
  };
  read(begin);
  State carry = Rule::none();
  if (writes && number > 0) {
    const int thread = threadIdx.x;
    const State state = thread < number ? states[row * chunks + thread] : Rule::none();
    carry = join_group<Rule>(state, of_warps[1], warps).total;
  }
  int turn = 0;
  for (int64_t part = begin; part - warp * kPart < end; part += warps * kPart, turn ^= 1) {
    T x[kItems], factor[kItems] = {};
    to_neighbours(next_x, x, own_staged);
    if constexpr (Rule::kHasFactor) to_neighbours(next_factor, factor, own_staged);
    read(part + warps * kPart);  // while these are joined
    const int64_t step = part + lane * kItems;
    State own[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      own[k] = step + k < end ? Given::begun(x[k], factor[k], given.place(step + k)) : Rule::none();
      if (k > 0) own[k] = Rule::joined(own[k - 1], own[k]);
    }
    const auto group = join_group<Rule>(own[kItems - 1], of_warps[turn], warps);
    if (writes) {
      const State before = Rule::joined(carry, group.before);
      Y y[kItems];
#pragma unroll
      for (int k = 0; k < kItems; ++k) y[k] = Given::result(Rule::joined(before, own[k]));
      from_neighbours(y, own_staged);
      Y* to = given.y + first + given.place(part + lane);
      const int64_t stride = given.reverse ? -kWarp : kWarp;
#pragma unroll
      for (int k = 0; k < kItems; ++k)
        if (part + lane + k * kWarp < end) to[k * stride] = y[k];
    }
    carry = Rule::joined(carry, group.total);
  }
  if (!writes && lane == 0 && warp == 0) states[item] = carry;
}

}  // namespace aicf::cuda
