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

// (status, target...) -> (status'); each target of i64, i32 or i1, any shape. Code `code + i` belongs to the
// i-th target, as do classes[i] and ignore_index[i].
Status check_check_index(const OpDesc& op) {
  const Tensors targets = op.ins("target");
  if (targets.empty()) return refuse(op, "target: expected one tensor or more, got none");
  AICF_TRY(check_status(op));
  for (size_t i = 0; i < targets.size(); ++i)
    if (const DType t = targets[i].dtype; t != DType::I64 && t != DType::I32 && t != DType::I1)
      return refuse(op, op.in_name(1 + i), ": expected i64, i32 or i1, got ", targets[i].str());
  for (const auto& attr : {kClasses, kIgnored})
    if (op.attrs.has(attr) && op.attrs.get(attr).size() != targets.size())
      return refuse(op, attr.name, ": expected one for each of ", targets.size(), " targets, got ",
                    op.attrs.get(attr).size());
  for (const int64_t classes : op.attrs.get(kClasses))
    if (classes < 1) return refuse(op, "classes: expected 1 or more, got ", classes);
  return Status::ok();
}

// (status, of_ranks) -> (status'): of_ranks has the status of each rank. The code of rank r is larger by r *
// code than it was there.
Status check_check_ranks(const OpDesc& op) {
  AICF_TRY(check_status(op));
  const TensorDesc& of_ranks = op.in("of_ranks");
  AICF_TRY(expect_rank(op, "of_ranks", of_ranks, 2));
  return expect_tensor(op, "of_ranks", of_ranks,
                       expected_tensor(DType::I64, {of_ranks.shape[0], kStatusNumbers}));
}

// Targets of at most two dimensions that do not walk as one.
Status supports_targets(const OpDesc& op) {
  Rows rows;
  for (const TensorDesc& target : op.ins("target"))
    if (!rows_of(target, &rows))
      return decline("needs targets of at most two dimensions with gaps, got strides ", target.strides_str(),
                     " of ", target.str());
  return needs_element_alignment(op);
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
    cuda_row("check_index_cuda", "check_index", kSmAny, AICF_CUDA(prepare_op<check_index_cuda>),
             supports_targets, check_index_cuda_workspace),
    cpu_row("check_index_cpu", "check_index", prepare_op<check_index_cpu>, supports_targets),
    cuda_row("check_finite_cuda", "check_finite", kSmAny, AICF_CUDA(prepare_op<check_finite_cuda>),
             needs_dense, check_finite_cuda_workspace),
    cpu_row("check_finite_cpu", "check_finite", prepare_op<check_finite_cpu>),
    cuda_row("check_ranks_cuda", "check_ranks", kSmAny, AICF_CUDA(prepare_op<check_ranks_cuda>), needs_dense),
    cpu_row("check_ranks_cpu", "check_ranks", prepare_op<check_ranks_cpu>),
};

}  // namespace

static const Family family([](KernelRegistry& registry) {
  registry.add(
      OpSchema{31,
               "CheckIndex",
               "check_index",
               "the status, or code + i where target[i] has an index neither of its classes nor ignored",
               {{"status"}, strided(many("target"))},
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
  registry.add(
      OpSchema{57,
               "CheckRanks",
               "check_ranks",
               "the status of the rank that failed at the first check, its code larger by rank * code",
               {{"status"}, {"of_ranks"}},
               {{"status"}},
               {required(kCode)},
               {{"status", "status"}},
               "",
               check_check_ranks});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
