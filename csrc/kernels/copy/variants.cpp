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

constexpr Prepare copy_on_cpu = prepare_with<copy_move, move_cpu>;
constexpr Prepare copy_on_cuda = AICF_CUDA((prepare_with<copy_move, move_cuda>));

constexpr KernelVariant kVariants[] = {
    skippable_cuda_row("copy_cuda", "copy", kSmAny, copy_on_cuda, needs_element_alignment),
    cpu_row("copy_cpu", "copy", copy_on_cpu, needs_element_alignment),
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
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
