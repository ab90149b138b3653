// Launchers of softmax along the last dimension: any float dtype, any length, sums in a fixed order.
#pragma once
#include "op/variant.h"

namespace aicf {

inline int64_t row_length(const TensorDesc& t) { return t.rank ? t.shape[t.rank - 1] : 1; }

// y = exp(x - largest x) / their sum.    dx = y * (dy - sum of dy * y), with y saved.
Status softmax_cpu(const OpDesc& op, const LaunchContext& ctx);
Status softmax_grad_cpu(const OpDesc& op, const LaunchContext& ctx);

Status softmax_cuda(const OpDesc& op, const LaunchContext& ctx);
Status softmax_grad_cuda(const OpDesc& op, const LaunchContext& ctx);

}  // namespace aicf
