// argsort on CUDA of one element of each row that a block holds, or of several of which the last is among the
// first kMostSelected. The key of the last one is found digit by digit from the highest, until all elements
// with the digits found are wanted. Elements of that key are numbered only where some of them are not wanted.
// One element is then written. Several, with all in front of them, are collected in any order, and each is
// compared with each by key and place. No two are equal, so the order of atomics does not matter.
#include "kernels/sort/digits.cuh"
#include "kernels/sort/keys.h"
#include "kernels/sort/launch.h"

namespace aicf {
namespace {

using namespace cuda;

// The first digit of a float has its sign, its exponent and the top of its mantissa. In 8 bits values of like
// size would have few different digits, and counts of the same digit wait for each other.
constexpr int kSelectBits = 11, kSelectDigits = 1 << kSelectBits;

// Of which digit the wanted element is, how many of that digit are in front of it, and how many have it.
struct Found {
  uint32_t digit, number, count;
};

template <int kThreads>
struct Counts {
  static constexpr int kWarps = kThreads / kWarp, kOfThread = kSelectDigits / kThreads;
  alignas(16) uint32_t of_digit[kSelectDigits];  // kOfThread for each thread
  uint32_t of_warp[kWarps];
  Found found;
};

// Finds the element at `number` in the order of digits, and sets all counts to zero. Begins behind a barrier,
// ends with one.
template <int kThreads>
__device__ __forceinline__ Found find(Counts<kThreads>& counts, uint32_t number) {
  constexpr int kOfThread = Counts<kThreads>::kOfThread;
  uint32_t own[kOfThread], sum = 0;
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) {
    own[i] = counts.of_digit[threadIdx.x * kOfThread + i];
    sum += own[i];
  }
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) counts.of_digit[threadIdx.x * kOfThread + i] = 0;
  uint32_t before = sum_in_front_before_barrier(sum, counts.of_warp);
  if (before <= number && number - before < sum) {
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      if (before <= number && number - before < own[i])
        counts.found = {threadIdx.x * kOfThread + i, number - before, own[i]};
      before += own[i];
    }
  }
  __syncthreads();
  return counts.found;
}

// Calls take(item, number) for each element of this thread that is one of those alike, with the number of
// such elements in front of it in the row. Begins behind a barrier.
template <int kItems, int kThreads, class IsAlike, class Take>
__device__ __forceinline__ void number_alike(Counts<kThreads>& counts, const IsAlike& is_alike,
                                             const Take& take) {
  constexpr int kWarps = Counts<kThreads>::kWarps;
  static_assert(kItems * kWarps <= kThreads);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const unsigned lanes = __ballot_sync(kAll, is_alike(item));
    if (lane == 0) counts.of_digit[item * kWarps + warp] = __popc(lanes);
  }
  __syncthreads();
  const bool has_count = threadIdx.x < kItems * kWarps;
  const uint32_t before =
      sum_in_front_before_barrier(has_count ? counts.of_digit[threadIdx.x] : 0, counts.of_warp);
  if (has_count) counts.of_digit[threadIdx.x] = before;
  __syncthreads();
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const unsigned lanes = __ballot_sync(kAll, is_alike(item));
    if (lanes >> lane & 1)
      take(item, counts.of_digit[item * kWarps + warp] + __popc(lanes & ((1u << lane) - 1)));
  }
}

template <class Key>
struct alignas(2 * sizeof(Key)) Placed {
  Key key;
  uint32_t place;
  __device__ bool operator<(const Placed& other) const {
    return key < other.key || (key == other.key && place < other.place);
  }
};

// Writes the places of all but the first `first` of `size` elements in their order. Begins behind a barrier.
template <class Key>
__device__ __forceinline__ void write_in_order(const Placed<Key>* elements, int size, int first,
                                               int64_t* index) {
  if (static_cast<int>(threadIdx.x) >= size) return;
  const Placed<Key> own = elements[threadIdx.x];
  int in_front = 0;
#pragma unroll 4
  for (int other = 0; other < size; ++other) in_front += elements[other] < own;
  if (in_front >= first) index[in_front - first] = own.place;
}

// The places of the elements at first … last of each row.
template <class Order, int kThreads, int kItems, bool kIsOne>
__global__ void __launch_bounds__(kThreads)
    select_kernel(const typename Order::Element* x, int64_t* index, int n, int first, int last,
                  typename Order::Key flip, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  using Key = typename Order::Key;
  static_assert(kMostSelected <= kThreads);  // a thread has one
  constexpr int kOfThread = Counts<kThreads>::kOfThread;
  __shared__ Counts<kThreads> counts;
  __shared__ Placed<Key> taken[kIsOne ? 1 : kMostSelected];
  __shared__ uint32_t taken_count;
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) counts.of_digit[threadIdx.x * kOfThread + i] = 0;
  if (threadIdx.x == 0) taken_count = 0;
  const int64_t row = blockIdx.x;
  const int items = (n + kThreads - 1 - static_cast<int>(threadIdx.x)) / kThreads;  // of this thread
  const auto place_of = [](int item) { return item * kThreads + static_cast<int>(threadIdx.x); };
  typename Order::Element elements[kItems];  // all are read before the first is waited for
#pragma unroll
  for (int item = 0; item < kItems; ++item) elements[item] = item < items ? x[row * n + place_of(item)] : 0;
  Key keys[kItems];
#pragma unroll
  for (int item = 0; item < kItems; ++item) keys[item] = key_of<Order>(elements[item], flip);
  __syncthreads();

  Found found{0, static_cast<uint32_t>(last), 0};
  Key wanted = 0;  // the key of the last one: its digits down to the last one found, then zeros
  Key known = 0;   // ones where digits are found
  bool is_whole;   // all elements with these digits are wanted
  for (int shift = max(Order::kBits - kSelectBits, 0);; shift = max(shift - kSelectBits, 0)) {
#pragma unroll
    for (int item = 0; item < kItems; ++item)
      if (item < items && (keys[item] & known) == wanted)
        atomicAdd(&counts.of_digit[static_cast<uint32_t>(keys[item] >> shift) & (kSelectDigits - 1)], 1u);
    __syncthreads();
    found = find(counts, found.number);
    wanted |= static_cast<Key>(found.digit) << shift;
    known |= static_cast<Key>(kSelectDigits - 1) << shift;
    is_whole = found.count == (kIsOne ? 1 : found.number + 1);
    if (is_whole || shift == 0) break;
  }

  const auto is_last = [&](int item) { return item < items && keys[item] == wanted; };  // unless is_whole
  if constexpr (kIsOne) {
    if (is_whole) {
#pragma unroll
      for (int item = 0; item < kItems; ++item)
        if (item < items && (keys[item] & known) == wanted) index[row] = place_of(item);
    } else {
      number_alike<kItems>(counts, is_last, [&](int item, uint32_t number) {
        if (number == found.number) index[row] = place_of(item);
      });
    }
  } else {
    const auto take = [&](int item, uint32_t to) {
      taken[to] = {keys[item], static_cast<uint32_t>(place_of(item))};
    };
    // Those up to `most` are wanted: all, or all but those of the key of the last one.
    const Key most = is_whole ? wanted | (kLastKey<Order> & ~known) : wanted - 1;
    const int taken_items = is_whole || wanted != 0 ? items : 0;  // no key is below 0
    uint32_t own_count = 0;
#pragma unroll
    for (int item = 0; item < kItems; ++item) own_count += item < taken_items && keys[item] <= most;
    if (own_count != 0) {
      uint32_t to = atomicAdd(&taken_count, own_count);
#pragma unroll
      for (int item = 0; item < kItems; ++item)
        if (item < taken_items && keys[item] <= most) take(item, to++);
    }
    if (!is_whole)
      number_alike<kItems>(counts, is_last, [&](int item, uint32_t number) {
        if (number <= found.number) take(item, last - found.number + number);
      });
    __syncthreads();
    write_in_order(taken, last + 1, first, index + row * (last + 1 - first));
  }
}

template <class Order, int kThreads, int kItems>
Status select_in_blocks(const Argsort& s, const LaunchContext& ctx) {
  const auto kernel = s.count == 1 ? select_kernel<Order, kThreads, kItems, true>
                                   : select_kernel<Order, kThreads, kItems, false>;
  return launch(ctx, static_cast<unsigned>(s.rows), kThreads, 0, kernel,
                static_cast<const typename Order::Element*>(s.x), s.index, static_cast<int>(s.n),
                static_cast<int>(s.first), static_cast<int>(s.first + s.count - 1),
                static_cast<typename Order::Key>(s.descending ? kLastKey<Order> : 0), ctx.predicate);
}

}  // namespace

Status argsort_select_cuda(const Argsort& s, const LaunchContext& ctx) {
  if (s.rows * s.count == 0) return Status::ok();
  return with_order(s.dtype, [&](auto tag) {
    using Order = typename decltype(tag)::type;
    if (s.n <= 1024) return select_in_blocks<Order, 256, 4>(s, ctx);
    if (s.n <= 2048) return select_in_blocks<Order, 256, 8>(s, ctx);
    if (s.n <= 4096) return select_in_blocks<Order, 256, 16>(s, ctx);
    return select_in_blocks<Order, 512, 16>(s, ctx);
  });
}

}  // namespace aicf
