// How reduce_sum is divided on CUDA.
#pragma once
#include "kernels/common/split.h"
#include "kernels/reduce/axes.h"

namespace aicf {

// Rows (the fastest axis is summed): a warp, or a block for long ones, adds the terms of one result. Columns:
// a thread has a result, so that neighbouring threads read neighbouring elements, and kColumnLanes threads
// share its terms.
constexpr int kSumThreads = 256;
constexpr int kColumnsPerBlock = 32;
constexpr int kColumnLanes = kSumThreads / kColumnsPerBlock;

inline Split sum_split(const SumAxes& axes) {
  if (!axes.inner_summed) {
    const int64_t blocks = (axes.kept_size + kColumnsPerBlock - 1) / kColumnsPerBlock;
    return split_terms(axes.summed_size, blocks, 16 * kColumnLanes);
  }
  if (axes.summed_size <= kLongestWarpRow) return {1, kLongestWarpRow};
  return split_terms(axes.summed_size, axes.kept_size, 16 * kSumThreads);
}

// Bytes for the partial sums; 0 where one part does it all.
inline size_t reduce_sum_cuda_workspace(const OpDesc& op) {
  const SumAxes axes = sum_axes(op);
  const Split split = sum_split(axes);
  const size_t element = op.inputs[0].dtype == DType::F64 ? sizeof(double) : sizeof(float);
  return split.parts > 1 ? static_cast<size_t>(split.parts * axes.kept_size) * element : 0;
}

}  // namespace aicf
