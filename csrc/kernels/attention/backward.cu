// Launches the gradient of attention: delta first, which both others read.
#include "kernels/attention/backward.cuh"
#include "kernels/attention/launch.h"

namespace aicf {

using namespace cuda;

Status attention_grad_cuda(const AttentionProblem& p, const LaunchContext& ctx) {
  return with_float_type(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* delta = static_cast<Compute<T>*>(ctx.workspace);
    const int64_t heads = p.batch * p.heads, key_heads = p.batch * p.key_heads;
    const int64_t columns = std::max(p.size, p.value_size);
    const bool wide = rows_are_wide<T>({&p.query, &p.key, &p.value, &p.dout});
    AICF_TRY(launch_delta<T>(p, ctx, delta));
    return with_tiling<T>(p, [&](auto tiling) {
      using S = decltype(tiling);
      if (key_heads * p.keys > 0)
        AICF_TRY(launch(ctx, grid_of<S>(key_heads, p.keys, columns), S::kThreads, kBackwardShared<S>,
                        attention_key_grad_kernel<S>, p, delta, wide));
      if (p.rows() == 0) return Status::ok();
      return launch(ctx, grid_of<S>(heads, p.queries, p.size), S::kThreads, kBackwardShared<S>,
                    attention_query_grad_kernel<S>, p, delta, wide);
    });
  });
}

}  // namespace aicf
