// Launchers of reduce_sum: any float dtype; fixed order of summation, so the same bits every time.
#pragma once
#include "op/variant.h"

namespace aicf {

Status reduce_sum_cpu(const OpDesc& op, const LaunchContext& ctx);
Status reduce_sum_cuda(const OpDesc& op, const LaunchContext& ctx);

}  // namespace aicf
