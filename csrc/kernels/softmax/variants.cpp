// softmax and its gradient. Each element is read for the last time before it is written: both run in place.
#include "kernels/common/rows.h"
#include "kernels/softmax/launch.h"
#include "op/registry.h"

namespace aicf {
namespace {

// Operands and result of one float dtype and one shape.
Status check_alike(const OpDesc& op) {
  AICF_TRY(expect_float(op, op.in_name(0).c_str(), op.inputs[0]));
  for (size_t i = 1; i < op.inputs.size(); ++i)
    AICF_TRY(expect_tensor(op, op.in_name(i).c_str(), op.inputs[i], op.inputs[0]));
  return expect_tensor(op, op.out_name(0).c_str(), op.outputs[0], op.inputs[0]);
}

OpSchema along_rows(int number, const char* kind, const char* name, const char* doc,
                    std::vector<OperandRow> inputs, const char* out) {
  std::vector<InPlace> in_place;
  for (const OperandRow& input : inputs) in_place.push_back({out, input.name});
  const char* numerics = "sums in an order that the kernel fixes";
  return {number, kind, name, doc, inputs, {{out}}, {}, in_place, numerics, check_alike};
}

constexpr KernelVariant kVariants[] = {
    AICF_CUDA_FLOAT_ROWS("softmax", prepare_op<softmax_cuda>, nullptr),
    cpu_row("softmax_cpu", "softmax", prepare_op<softmax_cpu>),
    AICF_CUDA_FLOAT_ROWS("softmax_grad", prepare_op<softmax_grad_cuda>, nullptr),
    cpu_row("softmax_grad_cpu", "softmax_grad", prepare_op<softmax_grad_cpu>),
};

}  // namespace

static const Family family([](KernelRegistry& registry) {
  registry.add(
      along_rows(33, "Softmax", "softmax", "exp(x) over its sum along the last dimension", {{"x"}}, "y"));
  registry.add(along_rows(34, "SoftmaxGrad", "softmax_grad", "gradient of softmax from dy and its result",
                          {{"dy"}, {"saved"}}, "dx"));
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
