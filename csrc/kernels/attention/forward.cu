// Launches attention.
#include "kernels/attention/forward.cuh"
#include "kernels/attention/launch.h"

namespace aicf {
using namespace cuda;

Status attention_cuda(const AttentionProblem& p, const LaunchContext& ctx) {
  if (p.rows() == 0) return Status::ok();
  return with_float_type(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const bool wide = rows_are_wide<T>({&p.query, &p.key, &p.value});
    return with_tiling<T>(p, [&](auto tiling) {
      using S = decltype(tiling);
      return launch(ctx, grid_of<S>(p.batch * p.heads, p.queries, p.value_size), S::kThreads,
                    kForwardShared<S>, attention_kernel<S>, p, wide);
    });
  });
}

}  // namespace aicf
