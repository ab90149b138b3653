#include "kernels/attention/hopper/backward.cuh"

namespace aicf {

Status attention_grad_hopper_masked(const AttentionProblem& p, const LaunchContext& ctx) {
  const bool chosen = p.chosen != nullptr;
  if (p.mask_kind == MaskKind::Seen)
    return chosen ? gradients<true, Masking::Seen>(p, ctx) : gradients<false, Masking::Seen>(p, ctx);
  return chosen ? gradients<true, Masking::Added>(p, ctx) : gradients<false, Masking::Added>(p, ctx);
}

}  // namespace aicf
