// The end of a loss, the same for all: parts in order, mean or sum, one rounding.
#pragma once
#include "kernels/common/numeric.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/loss/split.h"

namespace aicf::cuda {

template <class T>
struct LossDestination {
  T* loss;
  LossPart<Compute<T>>* parts;  // null where one block does it all
  bool mean;

  __device__ __forceinline__ void finish(Compute<T> sum, int64_t rows) const {
    *loss = narrow<T>(mean ? sum / static_cast<Compute<T>>(rows) : sum);  // the mean of nothing is 0/0 = NaN
  }
  __device__ __forceinline__ void write(Compute<T> sum, int64_t rows) const {
    if (parts) {
      parts[blockIdx.x] = {sum, rows};
    } else {
      finish(sum, rows);
    }
  }
};

// One warp.
template <class T>
__global__ void add_loss_parts_kernel(LossDestination<T> to, int64_t count) {
  dependency_wait();
  Compute<T> sum = 0;
  int64_t rows = 0;
  for (int64_t i = threadIdx.x; i < count; i += kWarp) {
    sum += to.parts[i].sum;
    rows += to.parts[i].rows;
  }
  sum = reduce_warp<Add>(sum);
  rows = reduce_warp<Add>(rows);
  if (threadIdx.x == 0) to.finish(sum, rows);
}

template <class T>
LossDestination<T> loss_destination(const OpDesc& op, const LaunchContext& ctx, const Split& split) {
  auto* parts = split.parts > 1 ? static_cast<LossPart<Compute<T>>*>(ctx.workspace) : nullptr;
  return {op.out("loss").ptr<T>(), parts, takes_mean(op)};
}

template <class T>
Status add_loss_parts(const LaunchContext& ctx, const LossDestination<T>& to, const Split& split) {
  if (!to.parts) return Status::ok();
  return launch(ctx, 1, kWarp, 0, add_loss_parts_kernel<T>, to, split.parts);
}

}  // namespace aicf::cuda
