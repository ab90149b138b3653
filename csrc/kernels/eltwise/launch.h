// The elementwise family, ready to launch. Each function serves every op of ops.h, and bias_add.
#pragma once
#include "kernels/eltwise/ops.h"
#include "op/variant.h"

namespace aicf {

enum class EltwiseOp {
#define X(number, kind, name, doc, formula) kind,
  AICF_BINARY_OPS(X) AICF_UNARY_OPS(X) AICF_BACKWARD_OPS(X)
#undef X
      BiasAdd
};

struct EltwiseLaunch {
  EltwiseOp op;
  OpDesc desc;
};
EltwiseLaunch eltwise_launch(const OpDesc& op);

// Any float dtype; binary ops broadcast, and take operands with gaps.
Status run_eltwise_cpu(const EltwiseLaunch& launch, const LaunchContext& ctx);
Status run_eltwise_cuda(const EltwiseLaunch& launch, const LaunchContext& ctx);
// f32, no broadcasting, numel % 4 == 0 (bias_add: n % 4 == 0), every operand aligned to 16 bytes.
Status run_eltwise_vec4_cuda(const EltwiseLaunch& launch, const LaunchContext& ctx);
// f16 or bf16, no broadcasting, even last dimension, every operand aligned to 4 bytes.
Status run_eltwise_half2_cuda(const EltwiseLaunch& launch, const LaunchContext& ctx);

}  // namespace aicf
