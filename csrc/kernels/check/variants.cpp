// Checks of a step's values: indices in range, numbers finite.
#include "kernels/check/launch.h"
#include "kernels/check/params.h"
#include "kernels/common/rows.h"
#include "op/registry.h"

namespace aicf {
namespace {

const TensorDesc kStatus = expected_tensor(DType::I64, {kStatusNumbers});

// The statuses, and a code that no other check has: 0 says that nothing failed.
Status check_status(const OpDesc& op) {
  AICF_TRY(expect_tensor(op, "status", op.in("status"), kStatus));
  AICF_TRY(expect_tensor(op, "status'", op.out("status"), kStatus));
  const int64_t code = op.attrs.get(kCode);
  return code > 0 ? Status::ok() : refuse(op, "code: expected 1 or more, got ", code);
}

// (status, target) -> (status'); target of i64, i32 or i1, any shape.
Status check_check_index(const OpDesc& op) {
  AICF_TRY(check_status(op));
  const TensorDesc& target = op.in("target");
  if (target.dtype != DType::I64 && target.dtype != DType::I32 && target.dtype != DType::I1)
    return refuse(op, "target: expected i64, i32 or i1, got ", target.str());
  const int64_t classes = op.attrs.get(kClasses);
  return classes > 0 ? Status::ok() : refuse(op, "classes: expected 1 or more, got ", classes);
}

// (status, x...) -> (status'); each x of a float dtype, any shape. Code `code + i` belongs to the i-th x.
Status check_check_finite(const OpDesc& op) {
  const Tensors tensors = op.ins("x");
  if (tensors.empty()) return refuse(op, "x: expected one tensor or more, got none");
  AICF_TRY(check_status(op));
  for (size_t i = 0; i < tensors.size(); ++i)
    AICF_TRY(expect_float(op, op.in_name(1 + i).c_str(), tensors[i]));
  return Status::ok();
}

constexpr KernelVariant kVariants[] = {
    cuda_row("check_index_cuda", "check_index", kSmAny, AICF_CUDA(prepare_op<check_index_cuda>), needs_dense),
    cpu_row("check_index_cpu", "check_index", prepare_op<check_index_cpu>),
    cuda_row("check_finite_cuda", "check_finite", kSmAny, AICF_CUDA(prepare_op<check_finite_cuda>),
             needs_dense, check_finite_cuda_workspace),
    cpu_row("check_finite_cpu", "check_finite", prepare_op<check_finite_cpu>),
};

}  // namespace

static const Family family([](KernelRegistry& registry) {
  registry.add(OpSchema{31,
                        "CheckIndex",
                        "check_index",
                        "the status, or code where a target is neither one of classes nor ignore_index",
                        {{"status"}, {"target"}},
                        {{"status"}},
                        {required(kClasses), optional(kIgnored), required(kCode)},
                        {{"status", "status"}},
                        "",
                        check_check_index});
  registry.add(OpSchema{32,
                        "CheckFinite",
                        "check_finite",
                        "the status, or code + i where x[i] has a NaN or an infinity",
                        {{"status"}, many("x")},
                        {{"status"}},
                        {required(kCode)},
                        {{"status", "status"}},
                        "",
                        check_check_finite});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
