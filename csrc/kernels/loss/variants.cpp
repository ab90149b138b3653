// Losses and their gradients with respect to the prediction.
#include "kernels/common/rows.h"
#include "kernels/loss/launch.h"
#include "kernels/loss/split.h"
#include "op/registry.h"

namespace aicf {
namespace {

// (y, t) -> (loss[]), one float dtype.
Status check_mse_loss(const OpDesc& op) {
  const TensorDesc& y = op.in("y");
  AICF_TRY(expect_float(op, "y", y));
  AICF_TRY(expect_tensor(op, "t", op.in("t"), y));
  return expect_tensor(op, "loss", op.out("loss"), expected_tensor(y.dtype, {}));
}

// (dloss[], y, t) -> (dy), one float dtype.
Status check_mse_grad(const OpDesc& op) {
  const TensorDesc& y = op.in("y");
  AICF_TRY(expect_float(op, "y", y));
  AICF_TRY(expect_tensor(op, "dloss", op.in("dloss"), expected_tensor(y.dtype, {})));
  AICF_TRY(expect_tensor(op, "t", op.in("t"), y));
  return expect_tensor(op, "dy", op.out("dy"), y);
}

// logits[N, C] of a float dtype, target[N] of i64 or i32, label_smoothing in [0, 1].
Status check_logits(const OpDesc& op, const TensorDesc& logits, const TensorDesc& target) {
  AICF_TRY(expect_float(op, "logits", logits));
  AICF_TRY(expect_rank(op, "logits", logits, 2));
  DType index = target.dtype == DType::I32 ? DType::I32 : DType::I64;
  AICF_TRY(expect_tensor(op, "target", target, expected_tensor(index, {logits.shape[0]})));
  double smoothing = op.attrs.get(kLabelSmoothing);
  if (!(smoothing >= 0 && smoothing <= 1))
    return refuse(op, "label_smoothing: expected a number from 0 to 1, got ", smoothing);
  return Status::ok();
}

// (logits, target) -> (loss[]).
Status check_cross_entropy(const OpDesc& op) {
  const TensorDesc& logits = op.in("logits");
  AICF_TRY(check_logits(op, logits, op.in("target")));
  return expect_tensor(op, "loss", op.out("loss"), expected_tensor(logits.dtype, {}));
}

// (dloss[], logits, target) -> (dlogits).
Status check_cross_entropy_grad(const OpDesc& op) {
  const TensorDesc& logits = op.in("logits");
  AICF_TRY(check_logits(op, logits, op.in("target")));
  AICF_TRY(expect_tensor(op, "dloss", op.in("dloss"), expected_tensor(logits.dtype, {})));
  return expect_tensor(op, "dlogits", op.out("dlogits"), logits);
}

constexpr KernelVariant kVariants[] = {
    AICF_CUDA_FLOAT_ROWS("mse_loss", prepare_op<mse_loss_cuda>, mse_loss_cuda_workspace),
    cpu_row("mse_loss_cpu", "mse_loss", prepare_op<mse_loss_cpu>),
    AICF_CUDA_FLOAT_ROWS("mse_grad", prepare_op<mse_grad_cuda>, nullptr),
    cpu_row("mse_grad_cpu", "mse_grad", prepare_op<mse_grad_cpu>),
    AICF_CUDA_FLOAT_ROWS("cross_entropy", prepare_op<cross_entropy_cuda>, cross_entropy_cuda_workspace),
    cpu_row("cross_entropy_cpu", "cross_entropy", prepare_op<cross_entropy_cpu>),
    AICF_CUDA_FLOAT_ROWS("cross_entropy_grad", prepare_op<cross_entropy_grad_cuda>,
                         cross_entropy_grad_cuda_workspace),
    cpu_row("cross_entropy_grad_cpu", "cross_entropy_grad", prepare_op<cross_entropy_grad_cpu>),
};

}  // namespace

static const Family family([](KernelRegistry& registry) {
  const std::vector<AttrRow> mse = {optional(kReduction)};
  const std::vector<AttrRow> cross_entropy = {optional(kReduction), optional(kIgnoreIndex),
                                              optional(kLabelSmoothing)};
  registry.add(OpSchema{21,
                        "MseLoss",
                        "mse_loss",
                        "mean or sum of (y - t)^2",
                        {{"y"}, {"t"}},
                        {{"loss"}},
                        mse,
                        {},
                        "one sum, in an order that the kernel fixes",
                        check_mse_loss});
  registry.add(OpSchema{22,
                        "MseGrad",
                        "mse_grad",
                        "gradient of mse_loss to y, times dloss",
                        {{"dloss"}, {"y"}, {"t"}},
                        {{"dy"}},
                        mse,
                        {},
                        "",
                        check_mse_grad});
  registry.add(OpSchema{23,
                        "CrossEntropy",
                        "cross_entropy",
                        "mean or sum over the rows of -log softmax(logits)[target]",
                        {{"logits"}, {"target"}},
                        {{"loss"}},
                        cross_entropy,
                        {},
                        "one sum, in an order that the kernel fixes",
                        check_cross_entropy});
  registry.add(OpSchema{24,
                        "CrossEntropyGrad",
                        "cross_entropy_grad",
                        "gradient of cross_entropy to logits, times dloss",
                        {{"dloss"}, {"logits"}, {"target"}},
                        {{"dlogits"}},
                        cross_entropy,
                        {},
                        "",
                        check_cross_entropy_grad});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
