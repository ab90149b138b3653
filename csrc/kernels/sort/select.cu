// argsort of one element of each row that a block holds on CUDA: its key is found digit by digit from the
// highest, then its place among those of that key. Only counts are added up, so the order of atomics does not
// matter.
#include "kernels/sort/digits.cuh"
#include "kernels/sort/keys.h"
#include "kernels/sort/launch.h"

namespace aicf {
namespace {

using namespace cuda;

constexpr int kSelectThreads = 256;  // also the number of digits: a thread has one
constexpr int kSelectWarps = kSelectThreads / kWarp;
static_assert(kSelectThreads == kDigits);

// Each thread has a count of elements, in their order: which thread's count has the element at `number`, and
// how many of that thread are in front of it.
struct Counted {
  uint32_t thread, number;
};
__device__ __forceinline__ Counted find(uint32_t count, uint32_t number, uint32_t* of_warp, Counted* found) {
  const uint32_t before = sum_in_front(count, of_warp);
  if (before <= number && number - before < count) *found = {threadIdx.x, number - before};
  __syncthreads();
  return *found;
}

template <class Order, int kItems>
__global__ void __launch_bounds__(kSelectThreads)
    select_kernel(const typename Order::Element* x, int64_t* index, int n, int number,
                  typename Order::Key flip, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  using Key = typename Order::Key;
  static_assert(kItems * kSelectWarps <= kSelectThreads);
  __shared__ uint32_t counts[kSelectThreads], of_warp[kSelectWarps];
  __shared__ Counted found;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t row = blockIdx.x;
  Key keys[kItems];
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int i = item * kSelectThreads + threadIdx.x;
    keys[item] = i < n ? key_of<Order>(x[row * n + i], flip) : Key(0);
  }
  Counted at{0, static_cast<uint32_t>(number)};
  Key wanted = 0;  // its digits down to the last one found, then zeros
  Key known = 0;   // ones where digits are found
  for (int shift = (Order::kBits - 1) / kDigitBits * kDigitBits; shift >= 0; shift -= kDigitBits) {
    counts[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int item = 0; item < kItems; ++item)
      if (item * kSelectThreads + static_cast<int>(threadIdx.x) < n && (keys[item] & known) == wanted)
        atomicAdd(&counts[static_cast<uint32_t>(keys[item] >> shift) & (kDigits - 1)], 1u);
    __syncthreads();
    at = find(counts[threadIdx.x], at.number, of_warp, &found);
    wanted |= static_cast<Key>(at.thread) << shift;
    known |= static_cast<Key>(kDigits - 1) << shift;
  }
  unsigned alike[kItems];
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const bool is_inside = item * kSelectThreads + static_cast<int>(threadIdx.x) < n;
    alike[item] = __ballot_sync(kAll, is_inside && keys[item] == wanted);
    if (lane == 0) counts[item * kSelectWarps + warp] = __popc(alike[item]);
  }
  __syncthreads();
  const bool has_count = threadIdx.x < kItems * kSelectWarps;
  at = find(has_count ? counts[threadIdx.x] : 0, at.number, of_warp, &found);
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const bool is_here = item * kSelectWarps + warp == static_cast<int>(at.thread);
    const bool is_wanted = alike[item] >> lane & 1;
    const unsigned in_front = __popc(alike[item] & ((1u << lane) - 1));
    if (is_here && is_wanted && in_front == at.number)
      index[row] = item * kSelectThreads + static_cast<int>(threadIdx.x);
  }
}

template <class Order, int kItems>
Status select_in_blocks(const Argsort& s, const LaunchContext& ctx) {
  return launch(ctx, static_cast<unsigned>(s.rows), kSelectThreads, 0, select_kernel<Order, kItems>,
                static_cast<const typename Order::Element*>(s.x), s.index, static_cast<int>(s.n),
                static_cast<int>(s.first),
                static_cast<typename Order::Key>(s.descending ? kLastKey<Order> : 0), ctx.predicate);
}

}  // namespace

Status argsort_select_cuda(const Argsort& s, const LaunchContext& ctx) {
  if (s.rows == 0) return Status::ok();
  return with_order(s.dtype, [&](auto tag) {
    using Order = typename decltype(tag)::type;
    if (s.n <= 4 * kSelectThreads) return select_in_blocks<Order, 4>(s, ctx);
    if (s.n <= 8 * kSelectThreads) return select_in_blocks<Order, 8>(s, ctx);
    return select_in_blocks<Order, 32>(s, ctx);
  });
}

}  // namespace aicf
