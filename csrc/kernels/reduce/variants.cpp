// reduce_sum: the sum over some dimensions, divided by a number (a mean is a sum over its count).
#include "kernels/common/rows.h"
#include "kernels/reduce/launch.h"
#include "kernels/reduce/split.h"
#include "op/registry.h"

namespace aicf {
namespace {

// dims: sorted, unique, each in [0, rank).
Status check_dims(const OpDesc& op) {
  const TensorDesc& x = op.inputs[0];
  int64_t previous = -1;
  for (int64_t dim : op.attrs.get(kDims)) {
    if (dim < 0 || dim >= x.rank)
      return refuse(op, "dims: expected dimensions from 0 to ", x.rank - 1, " of ", x.str(), ", got ", dim);
    if (dim <= previous)
      return refuse(op, "dims: expected ascending dimensions without repetition, got ", dim, " after ",
                    previous);
    previous = dim;
  }
  return Status::ok();
}

// (x) -> (y): y has x's shape with the summed dimensions removed, or kept with size 1.
Status check_reduce_sum(const OpDesc& op) {
  const TensorDesc &x = op.inputs[0], &y = op.outputs[0];
  AICF_TRY(expect_float(op, "x", x));
  AICF_TRY(check_dims(op));
  TensorDesc removed = x, kept = x;
  removed.rank = 0;
  size_t next = 0;
  const std::vector<int64_t>& dims = op.attrs.get(kDims);
  for (int i = 0; i < x.rank; ++i) {
    if (next < dims.size() && dims[next] == i) {
      kept.shape[i] = 1;
      ++next;
    } else {
      removed.shape[removed.rank++] = x.shape[i];
    }
  }
  if (same_tensor_type(y, removed) || same_tensor_type(y, kept)) return Status::ok();
  return refuse(op, "y: expected ", removed.str(), " or ", kept.str(), ", got ", y.str());
}

constexpr KernelVariant kVariants[] = {
    AICF_CUDA_FLOAT_ROWS("reduce_sum", prepare_op<reduce_sum_cuda>, reduce_sum_cuda_workspace),
    cpu_row("reduce_sum_cpu", "reduce_sum", prepare_op<reduce_sum_cpu>),
};

}  // namespace

static const Family family([](KernelRegistry& registry) {
  registry.add(OpSchema{20,
                        "ReduceSum",
                        "reduce_sum",
                        "the sum of x over dims, divided by divisor",
                        {{"x"}},
                        {{"y"}},
                        {required(kDims), optional(kDivisor)},
                        {},
                        "sums in an order that the kernel fixes",
                        check_reduce_sum});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
