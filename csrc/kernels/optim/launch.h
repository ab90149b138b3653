// The optimizer's kernels.
#pragma once
#include "kernels/optim/step.h"

namespace aicf {

Status advance_cpu(const OpDesc& op, const LaunchContext& ctx);
Status sgd_step_cpu(const Updates& updates, const LaunchContext& ctx);
Status adam_step_cpu(const Updates& updates, const LaunchContext& ctx);

Status advance_cuda(const OpDesc& op, const LaunchContext& ctx);
Status sgd_step_cuda(const Updates& updates, const LaunchContext& ctx);
Status adam_step_cuda(const Updates& updates, const LaunchContext& ctx);

}  // namespace aicf
