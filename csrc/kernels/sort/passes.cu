// argsort of long rows on CUDA: launches for the tiles of all rows.
#include "kernels/sort/elements.cuh"
#include "kernels/sort/radix.cuh"

namespace aicf {

using namespace cuda;

Status argsort_passes_cuda(const Argsort& s, const LaunchContext& ctx) {
  if (s.rows * s.count == 0) return Status::ok();
  return with_order(s.dtype, [&](auto tag) {
    using Order = typename decltype(tag)::type;
    WorkspaceParts parts(ctx.workspace);
    const SortMemory<typename Order::Key> memory(parts, s.rows, s.n, Order::kBits);
    return sort_by_digits<digit_bits(Order::kBits)>(FromElements<Order>(s), ToIndex(s), memory, ctx);
  });
}

}  // namespace aicf
