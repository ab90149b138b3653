#include "kernels/attention/hopper/forward.cuh"

namespace aicf {

Status attention_hopper_masked(const AttentionProblem& p, const LaunchContext& ctx) {
  if (p.mask_kind == MaskKind::Seen) return attention_with<Masking::Seen>(p, ctx);
  return attention_with<Masking::Added>(p, ctx);
}

}  // namespace aicf
