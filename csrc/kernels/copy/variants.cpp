// Data movement: copy and cast, between any two layouts.
#include "kernels/common/rows.h"
#include "kernels/copy/launch.h"
#include "op/registry.h"

namespace aicf {
namespace {

// (x) -> (y), one shape, any two dtypes.
Status check_copy(const OpDesc& op) {
  TensorDesc y = op.inputs[0];
  y.dtype = op.outputs[0].dtype;
  return expect_tensor(op, "y", op.outputs[0], y);
}

// (x...) -> (x'...), each pair of one shape, all x of one dtype and all x' of one.
Status check_multi_tensor_copy(const OpDesc& op) {
  const Tensors xs = op.ins("x");
  if (xs.empty()) return refuse(op, "x: expected one tensor or more, got none");
  for (size_t i = 0; i < xs.size(); ++i) {
    AICF_TRY(expect_dtype(op, op.in_name(i).c_str(), xs[i], xs[0].dtype));
    TensorDesc y = xs[i];
    y.dtype = op.outputs[0].dtype;
    AICF_TRY(expect_tensor(op, op.out_name(i).c_str(), op.outputs[i], y));
  }
  return Status::ok();
}

Status supports_moves(const OpDesc& op) {
  const size_t count = op.ins("x").size();
  if (count > kMostMoves) return decline("takes at most ", kMostMoves, " tensors, got ", count);
  const DType from = op.inputs[0].dtype, to = op.outputs[0].dtype;
  if (from != to && !(is_float(from) && is_float(to)))
    return decline("casts between floats only, got ", dtype_name(from), " and ", dtype_name(to));
  return needs_element_alignment(op);
}

constexpr Prepare copy_on_cpu = prepare_with<copy_move, move_cpu>;
constexpr Prepare copy_on_cuda = AICF_CUDA((prepare_with<copy_move, move_cuda>));
constexpr Prepare copies_on_cpu = prepare_with<copy_moves, moves_cpu>;
constexpr Prepare copies_on_cuda = AICF_CUDA((prepare_with<copy_moves, moves_cuda>));

constexpr KernelVariant kVariants[] = {
    skippable_cuda_row("copy_cuda", "copy", kSmAny, copy_on_cuda, needs_element_alignment),
    cpu_row("copy_cpu", "copy", copy_on_cpu, needs_element_alignment),
    skippable_cuda_row("multi_tensor_copy_cuda", "multi_tensor_copy", kSmAny, copies_on_cuda, supports_moves),
    cpu_row("multi_tensor_copy_cpu", "multi_tensor_copy", copies_on_cpu, supports_moves),
};

}  // namespace

static const Family family([](KernelRegistry& registry) {
  registry.add(OpSchema{25,
                        "Copy",
                        "copy",
                        "x, cast to the element type of y",
                        {strided("x")},
                        {strided("y")},
                        {},
                        {},
                        "",
                        check_copy});
  registry.add(OpSchema{59,
                        "MultiTensorCopy",
                        "multi_tensor_copy",
                        "each x, cast to the element type of its result, in the layout of that",
                        {strided(many("x"))},
                        {strided(many("x"))},
                        {},
                        {},
                        "",
                        check_multi_tensor_copy});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
