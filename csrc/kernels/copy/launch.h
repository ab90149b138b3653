// Launchers of copy, with a cast where the dtypes differ.
#pragma once
#include "kernels/copy/move.h"

namespace aicf {

Status move_cpu(const Move& move, const LaunchContext& ctx);
Status moves_cpu(const Moves& moves, const LaunchContext& ctx);

Status move_cuda(const Move& move, const LaunchContext& ctx);
Status moves_cuda(const Moves& moves, const LaunchContext& ctx);
// Where the two dtypes differ; a part of move_cuda.
Status cast_cuda(const Move& move, const LaunchContext& ctx);

}  // namespace aicf
