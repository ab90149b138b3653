// Launchers of the elementwise family. Each serves every op of ops.h by op.kind, and bias_add.
#pragma once
#include "runtime/kernel.h"

namespace aicf {

// Any float dtype; binary ops broadcast.
Status eltwise_cpu(const OpDesc& op, const LaunchContext& ctx);
Status bias_add_cpu(const OpDesc& op, const LaunchContext& ctx);

// Any float dtype; binary ops broadcast.
Status eltwise_cuda(const OpDesc& op, const LaunchContext& ctx);
Status bias_add_cuda(const OpDesc& op, const LaunchContext& ctx);
// f32, no broadcasting, numel % 4 == 0 (bias_add: N % 4 == 0), every operand aligned to 16 bytes.
Status eltwise_vec4_cuda(const OpDesc& op, const LaunchContext& ctx);
Status bias_add_vec4_cuda(const OpDesc& op, const LaunchContext& ctx);
// f16 or bf16, no broadcasting, even last dimension, every operand aligned to 4 bytes.
Status eltwise_half2_cuda(const OpDesc& op, const LaunchContext& ctx);
Status bias_add_half2_cuda(const OpDesc& op, const LaunchContext& ctx);

}  // namespace aicf
