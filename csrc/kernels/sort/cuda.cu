// argsort of rows that a warp or a block holds on CUDA, in one launch.
#include "kernels/sort/block.cuh"
#include "kernels/sort/elements.cuh"

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
    const FromElements<Order> from(s);
    const ToIndex to(s);
    constexpr int kBits = Order::kBits;
    if (s.n <= 256) return sort_in_blocks<256, 1>(from, to, s.rows, s.n, kBits, ctx);
    if (s.n <= 512) return sort_in_blocks<256, 2>(from, to, s.rows, s.n, kBits, ctx);
    if (s.n <= 1024) return sort_in_blocks<256, 4>(from, to, s.rows, s.n, kBits, ctx);
    if (s.n <= 2048) return sort_in_blocks<256, 8>(from, to, s.rows, s.n, kBits, ctx);
    if (s.n <= 4096) return sort_in_blocks<256, 16>(from, to, s.rows, s.n, kBits, ctx);
    return sort_in_blocks<512, 16>(from, to, s.rows, s.n, kBits, ctx);
  });
}

}  // namespace aicf
