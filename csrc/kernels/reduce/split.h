// How reduce_sum is divided on CUDA.
#pragma once
#include "kernels/common/split.h"
#include "kernels/reduce/axes.h"

namespace aicf {

// Rows (the fastest axis is summed): a warp, or a block for long ones, adds the terms of one result, and one
// thread those of a short one. Columns:
// a thread has the neighbouring results that 16 bytes hold, or one where they may not be read at once;
// kColumnThreads neighbours read 128 bytes of a row, and kColumnLanes threads share the terms of a result.
// The order of a sum is the same in both cases. Where a result has no more than kFewTerms, one thread adds
// them all: the others would have none, or a few.
constexpr int kSumThreads = 256;
constexpr int kColumnThreads = 8;
constexpr int kColumnLanes = kSumThreads / kColumnThreads;
constexpr int64_t kFewTerms = kColumnLanes / 4;

inline Split sum_split(const SumAxes& axes, DType dtype) {
  if (!axes.inner_summed) {
    const int64_t columns = kColumnThreads * 16 / static_cast<int64_t>(dtype_size(dtype));
    const int64_t blocks = (axes.kept_size + columns - 1) / columns;
    return split_terms(axes.summed_size, blocks, 4 * kColumnLanes);
  }
  if (axes.summed_size <= kLongestWarpRow) return {1, kLongestWarpRow};
  constexpr int64_t kUnit = 16;                  // terms: each part begins where 16 bytes do
  constexpr int64_t kEach = 2048 / kSumThreads;  // all threads that a multiprocessor has: memory is the limit
  return split_terms(axes.summed_size, axes.kept_size, 16 * kSumThreads, kUnit, kEach);
}

// Bytes for the partial sums; 0 where one part does it all.
inline size_t reduce_sum_cuda_workspace(const OpDesc& op) {
  const SumAxes axes = sum_axes(op);
  const Split split = sum_split(axes, op.inputs[0].dtype);
  const size_t element = op.inputs[0].dtype == DType::F64 ? sizeof(double) : sizeof(float);
  return split.parts > 1 ? static_cast<size_t>(split.parts * axes.kept_size) * element : 0;
}

}  // namespace aicf
