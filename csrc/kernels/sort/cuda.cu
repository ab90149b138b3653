// argsort of rows that a warp or a block holds on CUDA, in one launch.
#include "kernels/sort/digits.cuh"
#include "kernels/sort/keys.h"
#include "kernels/sort/launch.h"

namespace aicf {
namespace {

using namespace cuda;

constexpr int kRowThreads = 256;

// A warp has a row: an element's place is the number of those in front of it.
template <class Order, int kItems>
__global__ void __launch_bounds__(kRowThreads)
    rank_kernel(const typename Order::Element* x, int64_t* index, int64_t rows, int n, int first, int count,
                typename Order::Key flip, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  using Key = typename Order::Key;
  const int lane = threadIdx.x % kWarp;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kRowThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= rows) return;  // the same for all lanes of a warp
  Key keys[kItems];
  int places[kItems] = {};
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int i = item * kWarp + lane;
    keys[item] = i < n ? key_of<Order>(x[row * n + i], flip) : Key(0);
  }
#pragma unroll
  for (int from = 0; from < kItems; ++from) {
    for (int other = 0; other < min(kWarp, n - from * kWarp); ++other) {
      const Key key = __shfl_sync(kAll, keys[from], other);
#pragma unroll
      for (int item = 0; item < kItems; ++item) {
        const bool comes_first = item > from || (item == from && lane > other);
        places[item] += key < keys[item] || (key == keys[item] && comes_first);
      }
    }
  }
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int i = item * kWarp + lane, at = places[item] - first;
    if (i < n && at >= 0 && at < count) index[row * count + at] = i;
  }
}

// A block has a row of kItems elements a thread at most: it is sorted by its digits from the lowest.
template <class Order, int kThreads, int kItems>
struct BlockSort {
  using Key = typename Order::Key;
  uint32_t counts[kThreads / kWarp][kDigits], of_warp[kThreads / kWarp];
  Key keys[kThreads * kItems];
  uint16_t places[kThreads * kItems];
};

template <class Order, int kThreads, int kItems>
__global__ void __launch_bounds__(kThreads)
    block_sort_kernel(const typename Order::Element* x, int64_t* index, int n, int begin, int count,
                      typename Order::Key flip, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  using Key = typename Order::Key;
  extern __shared__ __align__(16) unsigned char shared[];
  auto& memory = *reinterpret_cast<BlockSort<Order, kThreads, kItems>*>(shared);
  const int64_t row = blockIdx.x;
  const int warp = threadIdx.x / kWarp, first = warp * (kItems * kWarp) + threadIdx.x % kWarp;
  Key keys[kItems];
  uint16_t places[kItems];
#pragma unroll
  for (int item = 0; item < kItems; ++item) {  // those past the end stay there
    const int i = first + item * kWarp;
    keys[item] = i < n ? key_of<Order>(x[row * n + i], flip) : kLastKey<Order>;
    places[item] = static_cast<uint16_t>(i);
  }
  for (int shift = 0; shift < Order::kBits; shift += kDigitBits) {
    uint32_t digits[kItems], to[kItems];
    for (int i = threadIdx.x; i < kThreads / kWarp * kDigits; i += kThreads) (&memory.counts[0][0])[i] = 0;
#pragma unroll
    for (int item = 0; item < kItems; ++item)
      digits[item] = static_cast<uint32_t>(keys[item] >> shift) & (kDigits - 1);
    __syncthreads();
    count_digits(digits, memory.counts[warp], to);
    __syncthreads();
    place_digits<kThreads>(memory.counts, memory.of_warp);
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      to[item] += memory.counts[warp][digits[item]];
      memory.keys[to[item]] = keys[item];
      memory.places[to[item]] = places[item];
    }
    __syncthreads();
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      keys[item] = memory.keys[first + item * kWarp];
      places[item] = memory.places[first + item * kWarp];
    }
  }
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int at = first + item * kWarp - begin;
    if (at >= 0 && at < count) index[row * count + at] = places[item];
  }
}

template <class Order, int kThreads, int kItems>
Status sort_in_blocks(const Argsort& s, const LaunchContext& ctx) {
  return launch(ctx, static_cast<unsigned>(s.rows), kThreads, sizeof(BlockSort<Order, kThreads, kItems>),
                block_sort_kernel<Order, kThreads, kItems>, static_cast<const typename Order::Element*>(s.x),
                s.index, static_cast<int>(s.n), static_cast<int>(s.first), static_cast<int>(s.count),
                static_cast<typename Order::Key>(s.descending ? kLastKey<Order> : 0), ctx.predicate);
}

template <class Order, int kItems>
Status rank_in_warps(const Argsort& s, const LaunchContext& ctx) {
  const int64_t blocks = ceil_div<int64_t>(s.rows, kRowThreads / kWarp);
  return launch(ctx, static_cast<unsigned>(blocks), kRowThreads, 0, rank_kernel<Order, kItems>,
                static_cast<const typename Order::Element*>(s.x), s.index, s.rows, static_cast<int>(s.n),
                static_cast<int>(s.first), static_cast<int>(s.count),
                static_cast<typename Order::Key>(s.descending ? kLastKey<Order> : 0), ctx.predicate);
}

}  // namespace

Status argsort_warps_cuda(const Argsort& s, const LaunchContext& ctx) {
  if (s.rows * s.count == 0) return Status::ok();
  return with_order(s.dtype, [&](auto tag) {
    using Order = typename decltype(tag)::type;
    if (s.n <= kWarp) return rank_in_warps<Order, 1>(s, ctx);
    if (s.n <= 2 * kWarp) return rank_in_warps<Order, 2>(s, ctx);
    return rank_in_warps<Order, 4>(s, ctx);
  });
}

Status argsort_blocks_cuda(const Argsort& s, const LaunchContext& ctx) {
  if (s.rows * s.count == 0) return Status::ok();
  return with_order(s.dtype, [&](auto tag) {
    using Order = typename decltype(tag)::type;
    if (s.n <= 256) return sort_in_blocks<Order, 256, 1>(s, ctx);
    if (s.n <= 512) return sort_in_blocks<Order, 256, 2>(s, ctx);
    if (s.n <= 1024) return sort_in_blocks<Order, 256, 4>(s, ctx);
    if (s.n <= 2048) return sort_in_blocks<Order, 256, 8>(s, ctx);
    if (s.n <= 4096) return sort_in_blocks<Order, 256, 16>(s, ctx);
    return sort_in_blocks<Order, 512, 16>(s, ctx);
  });
}

}  // namespace aicf
