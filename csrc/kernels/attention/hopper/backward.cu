#include "kernels/attention/hopper/backward.cuh"

namespace aicf {

Status attention_grad_hopper(const AttentionProblem& p, const LaunchContext& ctx) {
  if (p.rows() > 0) {
    AICF_TRY(with_half_type(p.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      constexpr int kLanes = 8;
      return launch(ctx, dim3(static_cast<unsigned>(ceil_div<int64_t>(p.rows() * kLanes, kDeltaThreads))),
                    kDeltaThreads, 0, attention_hopper_rows_kernel<T, kLanes>, p,
                    static_cast<Row*>(ctx.workspace), rows_are_wide<T>({&p.dout, &p.saved}));
    }));
  }
  if (p.mask_kind == MaskKind::None) return gradients<false, Masking::None>(p, ctx);
  return attention_grad_hopper_masked(p, ctx);
}

Status attention_grad_hopper_chosen(const AttentionProblem& p, const LaunchContext& ctx) {
  if (p.mask_kind == MaskKind::None) return gradients<true, Masking::None>(p, ctx);
  return attention_grad_hopper_masked(p, ctx);
}

}  // namespace aicf
