// Launchers of the checks: what a status says of the values of a step.
#pragma once
#include "op/variant.h"

namespace aicf {

// (status[3], target...) -> (status'[3]): the first element of the first target that is neither in
// 0 … classes - 1 nor ignore_index. A status that has failed already is handed on.
Status check_index_cpu(const OpDesc& op, const LaunchContext& ctx);
// (status[3], x...) -> (status'[3]): the first element of the first x that is NaN or infinite.
Status check_finite_cpu(const OpDesc& op, const LaunchContext& ctx);
// (status[3], of_ranks[ranks, 3]) -> (status'[3]): of the failed ones that with the least code, of several
// that of the first rank.
Status check_ranks_cpu(const OpDesc& op, const LaunchContext& ctx);
Status check_ranks_cuda(const OpDesc& op, const LaunchContext& ctx);

Status check_index_cuda(const OpDesc& op, const LaunchContext& ctx);
Status check_finite_cuda(const OpDesc& op, const LaunchContext& ctx);

}  // namespace aicf
