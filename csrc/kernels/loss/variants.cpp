// Losses and their gradients with respect to the prediction.
#include "kernels/common/rows.h"
#include "kernels/loss/launch.h"
#include "kernels/loss/split.h"
#include "runtime/registry.h"

namespace aicf {
namespace {

// (y, t) -> (loss[]), one float dtype.
Status check_mse_loss(const OpDesc& op) {
  AICF_TRY(expect_arity(op, 2, 1));
  const TensorDesc& y = op.inputs[0];
  AICF_TRY(expect_float(op, "y", y));
  AICF_TRY(expect_tensor(op, "t", op.inputs[1], y));
  return expect_tensor(op, "loss", op.outputs[0], expected_tensor(y.dtype, {}));
}

// (dloss[], y, t) -> (dy), one float dtype.
Status check_mse_grad(const OpDesc& op) {
  AICF_TRY(expect_arity(op, 3, 1));
  const TensorDesc& y = op.inputs[1];
  AICF_TRY(expect_float(op, "y", y));
  AICF_TRY(expect_tensor(op, "dloss", op.inputs[0], expected_tensor(y.dtype, {})));
  AICF_TRY(expect_tensor(op, "t", op.inputs[2], y));
  return expect_tensor(op, "dy", op.outputs[0], y);
}

// logits[N, C] of a float dtype, target[N] of i64 or i32, label_smoothing in [0, 1].
Status check_logits(const OpDesc& op, const TensorDesc& logits, const TensorDesc& target) {
  AICF_TRY(expect_float(op, "logits", logits));
  AICF_TRY(expect_rank(op, "logits", logits, 2));
  DType index = target.dtype == DType::I32 ? DType::I32 : DType::I64;
  AICF_TRY(expect_tensor(op, "target", target, expected_tensor(index, {logits.shape[0]})));
  double smoothing = op.attrs.number(AttrKey::label_smoothing);
  if (!(smoothing >= 0 && smoothing <= 1))
    return refuse(op, "label_smoothing: expected a number from 0 to 1, got ", smoothing);
  return Status::ok();
}

// (logits, target) -> (loss[]).
Status check_cross_entropy(const OpDesc& op) {
  AICF_TRY(expect_arity(op, 2, 1));
  AICF_TRY(check_logits(op, op.inputs[0], op.inputs[1]));
  return expect_tensor(op, "loss", op.outputs[0], expected_tensor(op.inputs[0].dtype, {}));
}

// (dloss[], logits, target) -> (dlogits).
Status check_cross_entropy_grad(const OpDesc& op) {
  AICF_TRY(expect_arity(op, 3, 1));
  const TensorDesc& logits = op.inputs[1];
  AICF_TRY(check_logits(op, logits, op.inputs[2]));
  AICF_TRY(expect_tensor(op, "dloss", op.inputs[0], expected_tensor(logits.dtype, {})));
  return expect_tensor(op, "dlogits", op.outputs[0], logits);
}

constexpr KernelVariant kVariants[] = {
    AICF_CUDA_FLOAT_ROWS("mse_loss", OpKind::MseLoss, mse_loss_cuda, mse_loss_cuda_workspace),
    cpu_row("mse_loss_cpu", OpKind::MseLoss, mse_loss_cpu),
    AICF_CUDA_FLOAT_ROWS("mse_grad", OpKind::MseGrad, mse_grad_cuda, mse_grad_cuda_workspace),
    cpu_row("mse_grad_cpu", OpKind::MseGrad, mse_grad_cpu),
    AICF_CUDA_FLOAT_ROWS("cross_entropy", OpKind::CrossEntropy, cross_entropy_cuda,
                         cross_entropy_cuda_workspace),
    cpu_row("cross_entropy_cpu", OpKind::CrossEntropy, cross_entropy_cpu),
    AICF_CUDA_FLOAT_ROWS("cross_entropy_grad", OpKind::CrossEntropyGrad, cross_entropy_grad_cuda,
                         cross_entropy_grad_cuda_workspace),
    cpu_row("cross_entropy_grad_cpu", OpKind::CrossEntropyGrad, cross_entropy_grad_cpu),
};

constexpr uint32_t kMse = attr_bit(AttrKey::reduction);
constexpr uint32_t kCrossEntropy =
    attr_bit(AttrKey::reduction) | attr_bit(AttrKey::ignore_index) | attr_bit(AttrKey::label_smoothing);

constexpr OpSchema kSchemas[] = {
    {OpKind::MseLoss, kMse, 0, check_mse_loss, never_alias},
    {OpKind::MseGrad, kMse, 0, check_mse_grad, never_alias},
    {OpKind::CrossEntropy, kCrossEntropy, 0, check_cross_entropy, never_alias},
    {OpKind::CrossEntropyGrad, kCrossEntropy, 0, check_cross_entropy_grad, never_alias},
};

}  // namespace

void register_loss(KernelRegistry& registry) {
  for (const OpSchema& schema : kSchemas) registry.add(schema);
  for (const KernelVariant& variant : kVariants) registry.add(variant);
}

}  // namespace aicf
