// The elementwise family: binary ops with broadcasting, unary ops, activation gradients, and bias_add.
#include "kernels/common/rows.h"
#include "kernels/eltwise/launch.h"
#include "kernels/eltwise/ops.h"
#include "runtime/registry.h"

namespace aicf {
namespace {

// (x) -> (y), one float dtype, one shape.
Status check_unary(const OpDesc& op) {
  AICF_TRY(expect_arity(op, 1, 1));
  AICF_TRY(expect_float(op, "x", op.inputs[0]));
  return expect_tensor(op, "y", op.outputs[0], op.inputs[0]);
}

// (x, y) -> (z), one float dtype, z has the broadcast shape.
Status check_binary(const OpDesc& op) {
  AICF_TRY(expect_arity(op, 2, 1));
  const TensorDesc &x = op.inputs[0], &y = op.inputs[1];
  AICF_TRY(expect_float(op, "x", x));
  AICF_TRY(expect_dtype(op, "y", y, x.dtype));
  TensorDesc z;
  AICF_TRY(broadcast_shape(op, x, y, &z));
  return expect_tensor(op, "z", op.outputs[0], z);
}

// (dy, saved) -> (dx), one float dtype, one shape.
Status check_backward(const OpDesc& op) {
  AICF_TRY(expect_arity(op, 2, 1));
  AICF_TRY(expect_float(op, "dy", op.inputs[0]));
  AICF_TRY(expect_tensor(op, "saved value", op.inputs[1], op.inputs[0]));
  return expect_tensor(op, "dx", op.outputs[0], op.inputs[0]);
}

// (x[.., N], b[N]) -> (y[.., N]), one float dtype.
Status check_bias_add(const OpDesc& op) {
  AICF_TRY(expect_arity(op, 2, 1));
  const TensorDesc& x = op.inputs[0];
  AICF_TRY(expect_float(op, "x", x));
  if (x.rank == 0) return refuse(op, "x: expected rank 1 or more, got ", x.str());
  AICF_TRY(expect_tensor(op, "b", op.inputs[1], expected_tensor(x.dtype, {x.shape[x.rank - 1]})));
  return expect_tensor(op, "y", op.outputs[0], x);
}

bool alias_same_type(const OpDesc& op, int out, int in) {
  return same_tensor_type(op.outputs[out], op.inputs[in]);
}

bool alias_bias_add(const OpDesc&, int, int in) { return in == 0; }

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
  if (op.inputs[1].shape[0] % 4 != 0)
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

// The rows of one op: vectorised first, then one per dtype, then the CPU. `family` names the launchers.
#define AICF_ELTWISE_ROWS(name, kind, family, half2, vec4)                                             \
  cuda_row(name "_f16_half2", kind, kSmAny, AICF_CUDA_LAUNCH(family##_half2_cuda), half2<DType::F16>), \
      cuda_row(name "_bf16_half2", kind, kSmBFloat16, AICF_CUDA_LAUNCH(family##_half2_cuda),           \
               half2<DType::BF16>),                                                                    \
      cuda_row(name "_f32_vec4", kind, kSmAny, AICF_CUDA_LAUNCH(family##_vec4_cuda), vec4),            \
      AICF_CUDA_FLOAT_ROWS(name, kind, family##_cuda, nullptr), cpu_row(name "_cpu", kind, family##_cpu)

constexpr KernelVariant kVariants[] = {
#define X(kind, name, formula) AICF_ELTWISE_ROWS(#name, OpKind::kind, eltwise, supports_half2, supports_vec4),
    AICF_BINARY_OPS(X) AICF_UNARY_OPS(X) AICF_BACKWARD_OPS(X)
#undef X
        AICF_ELTWISE_ROWS("bias_add", OpKind::BiasAdd, bias_add, supports_bias_add_half2,
                          supports_bias_add_vec4),
};

constexpr OpSchema kSchemas[] = {
#define X(kind, name, formula) {OpKind::kind, 0, 0, check_binary, alias_same_type},
    AICF_BINARY_OPS(X)
#undef X
#define X(kind, name, formula) {OpKind::kind, 0, 0, check_unary, alias_same_type},
        AICF_UNARY_OPS(X)
#undef X
#define X(kind, name, formula) {OpKind::kind, 0, 0, check_backward, alias_same_type},
            AICF_BACKWARD_OPS(X)
#undef X
                {OpKind::BiasAdd, 0, 0, check_bias_add, alias_bias_add}};

}  // namespace

void register_eltwise(KernelRegistry& registry) {
  for (const OpSchema& schema : kSchemas) registry.add(schema);
  for (const KernelVariant& variant : kVariants) registry.add(variant);
}

}  // namespace aicf
