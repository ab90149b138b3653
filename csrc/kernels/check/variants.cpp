// Checks of a step's values: indices in range, numbers finite.
#include "kernels/check/launch.h"
#include "kernels/check/params.h"
#include "kernels/common/rows.h"
#include "runtime/registry.h"

namespace aicf {
namespace {

const TensorDesc kStatus = expected_tensor(DType::I64, {kStatusNumbers});

// The statuses, and a code that no other check has: 0 says that nothing failed.
Status check_status(const OpDesc& op) {
  AICF_TRY(expect_tensor(op, "status", op.inputs[0], kStatus));
  AICF_TRY(expect_tensor(op, "status'", op.outputs[0], kStatus));
  const int64_t code = op.attrs.integer(AttrKey::code);
  return code > 0 ? Status::ok() : refuse(op, "code: expected 1 or more, got ", code);
}

// (status, target) -> (status'); target of i64 or i32, any shape.
Status check_check_index(const OpDesc& op) {
  AICF_TRY(expect_arity(op, 2, 1));
  AICF_TRY(check_status(op));
  const TensorDesc& target = op.inputs[1];
  if (target.dtype != DType::I64 && target.dtype != DType::I32)
    return refuse(op, "target: expected i64 or i32, got ", target.str());
  const int64_t classes = op.attrs.integer(AttrKey::classes);
  return classes > 0 ? Status::ok() : refuse(op, "classes: expected 1 or more, got ", classes);
}

// (status, x...) -> (status'); each x of a float dtype, any shape. Code `code + i` belongs to the i-th x.
Status check_check_finite(const OpDesc& op) {
  if (op.inputs.size() < 2 || op.outputs.size() != 1)
    return refuse(op, "expected (status, x...) -> (status'), got ", op.inputs.size(), " inputs and ",
                  op.outputs.size(), " outputs");
  AICF_TRY(check_status(op));
  for (size_t i = 1; i < op.inputs.size(); ++i)
    AICF_TRY(expect_float(op, ("x[" + std::to_string(i - 1) + "]").c_str(), op.inputs[i]));
  return Status::ok();
}

// status' with status.
bool alias_status(const OpDesc&, int, int in) { return in == 0; }

constexpr KernelVariant kVariants[] = {
    cuda_row("check_index_cuda", OpKind::CheckIndex, kSmAny, AICF_CUDA_LAUNCH(check_index_cuda), needs_dense),
    cpu_row("check_index_cpu", OpKind::CheckIndex, check_index_cpu),
    cuda_row("check_finite_cuda", OpKind::CheckFinite, kSmAny, AICF_CUDA_LAUNCH(check_finite_cuda),
             needs_dense, check_finite_cuda_workspace),
    cpu_row("check_finite_cpu", OpKind::CheckFinite, check_finite_cpu),
};

constexpr uint32_t kCode = attr_bit(AttrKey::code);
constexpr uint32_t kClasses = attr_bit(AttrKey::classes);

constexpr OpSchema kSchemas[] = {
    {OpKind::CheckIndex, kCode | kClasses | attr_bit(AttrKey::ignore_index), kCode | kClasses,
     check_check_index, alias_status},
    {OpKind::CheckFinite, kCode, kCode, check_check_finite, alias_status},
};

}  // namespace

void register_check(KernelRegistry& registry) {
  for (const OpSchema& schema : kSchemas) registry.add(schema);
  for (const KernelVariant& variant : kVariants) registry.add(variant);
}

}  // namespace aicf
