#include "kernels/attention/hopper/forward.cuh"

namespace aicf {

Status attention_hopper(const AttentionProblem& p, const LaunchContext& ctx) {
  if (p.rows() == 0) return Status::ok();
  if (p.mask_kind == MaskKind::None) return attention_with<Masking::None>(p, ctx);
  return attention_hopper_masked(p, ctx);
}

}  // namespace aicf
