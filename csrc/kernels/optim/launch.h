// Launchers of the optimizer steps; one launch updates all tensors of all groups. See step.h for operands and
// formulas.
#pragma once
#include "runtime/kernel.h"

namespace aicf {

// (step[n]) -> (step'[n]), or (step[n], beta1, beta2, bc1_pin, bc2_pin) -> (step'[n], bc1_inv[n],
// bc2_inv[n]), for the n parameters of a group: step' = step + 1; bc1_inv = 1 / (1 - beta1^step') in f64
// unless bc1_pin is a number, which then stands for all of them.
Status advance_cpu(const OpDesc& op, const LaunchContext& ctx);
Status sgd_step_cpu(const OpDesc& op, const LaunchContext& ctx);
Status adam_step_cpu(const OpDesc& op, const LaunchContext& ctx);

Status advance_cuda(const OpDesc& op, const LaunchContext& ctx);
Status sgd_step_cuda(const OpDesc& op, const LaunchContext& ctx);
Status adam_step_cuda(const OpDesc& op, const LaunchContext& ctx);

}  // namespace aicf
