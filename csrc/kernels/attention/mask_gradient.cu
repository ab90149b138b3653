// Launches the gradient of a mask: delta first, then the tiles, then the sums of their parts.
#include "kernels/attention/launch.h"
#include "kernels/attention/mask_gradient.cuh"

namespace aicf {

using namespace cuda;

Status attention_mask_grad_cuda(const AttentionProblem& p, const LaunchContext& ctx) {
  if (p.dmask_images * p.dmask_heads * p.queries * p.keys == 0) return Status::ok();
  return with_float_type(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* delta = static_cast<Compute<T>*>(ctx.workspace);
    const bool wide = rows_are_wide<T>({&p.query, &p.key, &p.value, &p.dout});
    AICF_TRY(launch_delta<T>(p, ctx, delta));
    return with_tiling<T>(p, [&](auto tiling) {
      using S = decltype(tiling);
      const MaskParts parts(p);
      Compute<T>* sums = parts.count > 1 ? delta + p.rows() : nullptr;
      const int64_t tiles = ceil_div<int64_t>(p.queries, S::kRows) * ceil_div<int64_t>(p.keys, S::kStep);
      const dim3 grid(static_cast<unsigned>(p.dmask_images * p.dmask_heads * tiles),
                      static_cast<unsigned>(parts.count));
      AICF_TRY(launch(ctx, grid, S::kThreads, kMaskShared<S>, attention_mask_grad_kernel<S>, p, delta, sums,
                      parts.shared, wide));
      return sums == nullptr ? Status::ok() : add_mask_parts<T>(p, ctx, sums, parts.count);
    });
  });
}

}  // namespace aicf
