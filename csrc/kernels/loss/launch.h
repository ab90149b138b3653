// Launchers of the losses and their gradients; any float dtype, deterministic. See params.h for the meaning
// of cross entropy.
#pragma once
#include "op/variant.h"

namespace aicf {

// loss = mean or sum of (y - t)^2.   dy = dloss * (2 / numel or 2) * (y - t).
Status mse_loss_cpu(const OpDesc& op, const LaunchContext& ctx);
Status mse_grad_cpu(const OpDesc& op, const LaunchContext& ctx);
Status cross_entropy_cpu(const OpDesc& op, const LaunchContext& ctx);
Status cross_entropy_grad_cpu(const OpDesc& op, const LaunchContext& ctx);

Status mse_loss_cuda(const OpDesc& op, const LaunchContext& ctx);
Status mse_grad_cuda(const OpDesc& op, const LaunchContext& ctx);
Status cross_entropy_cuda(const OpDesc& op, const LaunchContext& ctx);
Status cross_entropy_grad_cuda(const OpDesc& op, const LaunchContext& ctx);

}  // namespace aicf
