// Launchers that move data: copy (with a cast between any two dtypes), transpose and broadcast (any dtype,
// bits unchanged).
#pragma once
#include "op/variant.h"

namespace aicf {

inline const Attr<std::vector<int64_t>> kPerm{"perm", std::nullopt};

Status copy_cpu(const OpDesc& op, const LaunchContext& ctx);
Status transpose_cpu(const OpDesc& op, const LaunchContext& ctx);
Status broadcast_cpu(const OpDesc& op, const LaunchContext& ctx);

Status copy_cuda(const OpDesc& op, const LaunchContext& ctx);
Status transpose_cuda(const OpDesc& op, const LaunchContext& ctx);
Status broadcast_cuda(const OpDesc& op, const LaunchContext& ctx);

}  // namespace aicf
