// The elementwise family: binary ops with broadcasting, unary ops, activation gradients, and bias_add.
#include <map>

#include "kernels/common/rows.h"
#include "kernels/eltwise/launch.h"
#include "kernels/eltwise/ops.h"
#include "op/registry.h"

namespace aicf {
namespace {

// (x) -> (y), one float dtype, one shape.
Status check_unary(const OpDesc& op) {
  AICF_TRY(expect_float(op, "x", op.in("x")));
  return expect_tensor(op, "y", op.out("y"), op.in("x"));
}

// (x, y) -> (z), one float dtype, z has the broadcast shape.
Status check_binary(const OpDesc& op) {
  const TensorDesc &x = op.in("x"), &y = op.in("y");
  AICF_TRY(expect_float(op, "x", x));
  AICF_TRY(expect_dtype(op, "y", y, x.dtype));
  TensorDesc z;
  AICF_TRY(broadcast_shape(op, x, y, &z));
  return expect_tensor(op, "z", op.out("z"), z);
}

// (dy, saved) -> (dx), one float dtype, one shape.
Status check_backward(const OpDesc& op) {
  AICF_TRY(expect_float(op, "dy", op.in("dy")));
  AICF_TRY(expect_tensor(op, "saved value", op.in("saved"), op.in("dy")));
  return expect_tensor(op, "dx", op.out("dx"), op.in("dy"));
}

// (x[.., N], bias[N]) -> (y[.., N]), one float dtype.
Status check_bias_add(const OpDesc& op) {
  const TensorDesc& x = op.in("x");
  AICF_TRY(expect_float(op, "x", x));
  if (x.rank == 0) return refuse(op, "x: expected rank 1 or more, got ", x.str());
  AICF_TRY(expect_tensor(op, "bias", op.in("bias"), expected_tensor(x.dtype, {x.shape[x.rank - 1]})));
  return expect_tensor(op, "y", op.out("y"), x);
}

bool alias_same_type(const OpDesc& op, size_t out, size_t in) {
  return same_tensor_type(op.outputs[out], op.inputs[in]);
}

Status needs_no_broadcasting(const OpDesc& op) {
  for (const TensorDesc& x : op.inputs) {
    if (!x.same_shape(op.outputs[0]))
      return decline("does not broadcast, got ", x.str(), " for a result of ", op.outputs[0].str());
  }
  return Status::ok();
}

Status needs_even_last_dim(const OpDesc& op) {
  const TensorDesc& y = op.outputs[0];
  if (y.rank > 0 && y.shape[y.rank - 1] % 2 == 0) return Status::ok();
  return decline("needs an even last dimension, got ", y.str());
}

// Operands with gaps too, where the schema takes them.
template <DType dtype>
Status supports_any_layout(const OpDesc& op) {
  AICF_TRY(needs_dtype(op, dtype));
  return needs_element_alignment(op);
}

template <DType dtype>
Status supports_bias_add_half2(const OpDesc& op) {
  AICF_TRY(supports_dtype<dtype>(op));
  AICF_TRY(needs_even_last_dim(op));
  return needs_alignment(op, 4);
}

template <DType dtype>
Status supports_half2(const OpDesc& op) {
  AICF_TRY(supports_dtype<dtype>(op));
  AICF_TRY(needs_no_broadcasting(op));
  AICF_TRY(needs_even_last_dim(op));
  return needs_alignment(op, 4);
}

Status supports_bias_add_vec4(const OpDesc& op) {
  AICF_TRY(supports_dtype<DType::F32>(op));
  if (op.in("bias").shape[0] % 4 != 0)
    return decline("needs a last dimension divisible by 4, got ", op.outputs[0].str());
  return needs_alignment(op, 16);
}

Status supports_vec4(const OpDesc& op) {
  AICF_TRY(supports_dtype<DType::F32>(op));
  AICF_TRY(needs_no_broadcasting(op));
  if (op.outputs[0].numel() % 4 != 0)
    return decline("needs a number of elements divisible by 4, got ", op.outputs[0].str());
  return needs_alignment(op, 16);
}

// The rows of one op: vectorised first, then one per dtype, then the CPU. `family` names the functions.
#define AICF_ELTWISE_ROWS(op, family, half2, vec4)                                                       \
  cuda_row(op "_f16_half2", op, kSmAny, AICF_CUDA(family##_half2_cuda), half2<DType::F16>),              \
      cuda_row(op "_bf16_half2", op, kSmBFloat16, AICF_CUDA(family##_half2_cuda), half2<DType::BF16>),   \
      cuda_row(op "_f32_vec4", op, kSmAny, AICF_CUDA(family##_vec4_cuda), vec4),                         \
      cuda_row(op "_f16", op, kSmAny, AICF_CUDA(family##_cuda), supports_any_layout<DType::F16>),        \
      cuda_row(op "_bf16", op, kSmBFloat16, AICF_CUDA(family##_cuda), supports_any_layout<DType::BF16>), \
      cuda_row(op "_f32", op, kSmAny, AICF_CUDA(family##_cuda), supports_any_layout<DType::F32>),        \
      cuda_row(op "_f64", op, kSmAny, AICF_CUDA(family##_cuda), supports_any_layout<DType::F64>),        \
      cpu_row(op "_cpu", op, family##_cpu, needs_element_alignment)

constexpr Prepare eltwise_cuda = AICF_CUDA((prepare_with<eltwise_launch, run_eltwise_cuda>));
constexpr Prepare eltwise_vec4_cuda = AICF_CUDA((prepare_with<eltwise_launch, run_eltwise_vec4_cuda>));
constexpr Prepare eltwise_half2_cuda = AICF_CUDA((prepare_with<eltwise_launch, run_eltwise_half2_cuda>));
constexpr Prepare eltwise_cpu = prepare_with<eltwise_launch, run_eltwise_cpu>;

constexpr KernelVariant kVariants[] = {
#define X(number, kind, name, doc, formula) AICF_ELTWISE_ROWS(#name, eltwise, supports_half2, supports_vec4),
    AICF_BINARY_OPS(X) AICF_UNARY_OPS(X) AICF_BACKWARD_OPS(X)
#undef X
        AICF_ELTWISE_ROWS("bias_add", eltwise, supports_bias_add_half2, supports_bias_add_vec4),
};

OpSchema unary(int number, const char* kind, const char* name, const char* doc) {
  return {number, kind, name, doc, {{"x"}}, {{"y"}}, {}, {{"y", "x"}}, "", check_unary};
}

OpSchema binary(int number, const char* kind, const char* name, const char* doc) {
  return {number,
          kind,
          name,
          doc,
          {strided("x"), strided("y")},
          {{"z"}},
          {},
          {{"z", "x"}, {"z", "y"}},
          "",
          check_binary,
          alias_same_type};
}

OpSchema backward(int number, const char* kind, const char* name, const char* doc) {
  return {
      number, kind,          name, doc, {{"dy"}, {"saved"}}, {{"dx"}}, {}, {{"dx", "dy"}, {"dx", "saved"}},
      "",     check_backward};
}

}  // namespace

EltwiseLaunch eltwise_launch(const OpDesc& op) {
  static const std::map<std::string, EltwiseOp> ops = {
#define X(number, kind, name, doc, formula) {#name, EltwiseOp::kind},
      AICF_BINARY_OPS(X) AICF_UNARY_OPS(X) AICF_BACKWARD_OPS(X)
#undef X
          {"bias_add", EltwiseOp::BiasAdd}};
  return {ops.at(op.schema->name), op};
}

static const Family family([](KernelRegistry& registry) {
#define X(number, kind, name, doc, formula) registry.add(binary(number, #kind, #name, doc));
  AICF_BINARY_OPS(X)
#undef X
#define X(number, kind, name, doc, formula) registry.add(unary(number, #kind, #name, doc));
  AICF_UNARY_OPS(X)
#undef X
#define X(number, kind, name, doc, formula) registry.add(backward(number, #kind, #name, doc));
  AICF_BACKWARD_OPS(X)
#undef X
  registry.add(OpSchema{4,
                        "BiasAdd",
                        "bias_add",
                        "x[.., n] + bias[n]",
                        {{"x"}, {"bias"}},
                        {{"y"}},
                        {},
                        {{"y", "x"}},
                        "",
                        check_bias_add});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
