// argsort of long rows on CUDA: launches for the tiles of all rows.
#include "kernels/sort/keys.h"
#include "kernels/sort/launch.h"
#include "kernels/sort/radix.cuh"

namespace aicf {
namespace {

using namespace cuda;

template <class Order>
struct FromElements {
  using Key = typename Order::Key;
  const typename Order::Element* x;
  int64_t n;
  Key flip;
  __device__ Key key(int64_t row, int64_t i) const { return key_of<Order>(x[row * n + i], flip); }
  __device__ uint32_t value(int64_t, int64_t i) const { return static_cast<uint32_t>(i); }
};

template <class Key>
struct ToIndex {
  int64_t* index;
  int64_t count, first;
  __device__ void put_key(int64_t, int64_t, Key) const {}
  __device__ void put_value(int64_t row, int64_t to, uint32_t value) const {
    const int64_t at = to - first;
    if (at >= 0 && at < count) index[row * count + at] = value;
  }
};

}  // namespace

Status argsort_passes_cuda(const Argsort& s, const LaunchContext& ctx) {
  if (s.rows * s.count == 0) return Status::ok();
  return with_order(s.dtype, [&](auto tag) {
    using Order = typename decltype(tag)::type;
    using Key = typename Order::Key;
    WorkspaceParts parts(ctx.workspace);
    const SortMemory<Key> memory(parts, s.rows, s.n);
    const FromElements<Order> from{static_cast<const typename Order::Element*>(s.x), s.n,
                                   s.descending ? kLastKey<Order> : 0};
    return sort_by_digits(from, ToIndex<Key>{s.index, s.count, s.first}, s.rows, s.n, Order::kBits, memory,
                          ctx);
  });
}

}  // namespace aicf
