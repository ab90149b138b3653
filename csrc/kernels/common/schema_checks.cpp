#include "kernels/common/schema_checks.h"

#include <algorithm>

namespace aicf {
namespace {

std::string operand_name(const OpDesc& op, size_t index) {
  return index < op.inputs.size() ? "input " + std::to_string(index)
                                  : "output " + std::to_string(index - op.inputs.size());
}

// Calls `rule` on each input, then on each output, until one is refused.
template <class Rule>
Status for_each_operand(const OpDesc& op, Rule rule) {
  for (size_t i = 0; i < op.inputs.size(); ++i) AICF_TRY(rule(op.inputs[i], i));
  for (size_t i = 0; i < op.outputs.size(); ++i) AICF_TRY(rule(op.outputs[i], op.inputs.size() + i));
  return Status::ok();
}

}  // namespace

TensorDesc expected_tensor(DType dtype, const std::vector<int64_t>& shape) {
  TensorDesc t;
  t.dtype = dtype;
  t.rank = static_cast<int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), t.shape);
  return t;
}

Status expect_tensor(const OpDesc& op, const char* name, const TensorDesc& got, const TensorDesc& want) {
  if (same_tensor_type(got, want)) return Status::ok();
  return refuse(op, name, ": expected ", want.str(), ", got ", got.str());
}

Status expect_dtype(const OpDesc& op, const char* name, const TensorDesc& got, DType want) {
  if (got.dtype == want) return Status::ok();
  return refuse(op, name, ": expected element type ", dtype_name(want), ", got ", got.str());
}

Status expect_float(const OpDesc& op, const char* name, const TensorDesc& got) {
  if (is_float(got.dtype)) return Status::ok();
  return refuse(op, name, ": expected element type f32, f64, f16 or bf16, got ", got.str());
}

Status expect_rank(const OpDesc& op, const char* name, const TensorDesc& got, int rank) {
  if (got.rank == rank) return Status::ok();
  return refuse(op, name, ": expected rank ", rank, ", got ", got.str());
}

Status broadcast_shape(const OpDesc& op, const TensorDesc& x, const TensorDesc& y, TensorDesc* out) {
  *out = x;
  out->rank = std::max(x.rank, y.rank);
  for (int i = 1; i <= out->rank; ++i) {  // from the last dimension
    int64_t p = i <= x.rank ? x.shape[x.rank - i] : 1;
    int64_t q = i <= y.rank ? y.shape[y.rank - i] : 1;
    if (p != q && p != 1 && q != 1) {
      return refuse(op, "expected shapes that broadcast together, got ", x.str(), " and ", y.str());
    }
    out->shape[out->rank - i] = p == 1 ? q : p;
  }
  return Status::ok();
}

bool same_tensor_type(const TensorDesc& a, const TensorDesc& b) {
  return a.dtype == b.dtype && a.same_shape(b);
}

Status needs_dense(const OpDesc& op) {
  AICF_TRY(for_each_operand(op, [&](const TensorDesc& t, size_t i) {
    if (t.contiguous()) return Status::ok();
    return decline("needs contiguous operands, ", operand_name(op, i), " is ", t.str(), " with strides ",
                   t.strides_str());
  }));
  return needs_element_alignment(op);
}

Status needs_element_alignment(const OpDesc& op) {
  return for_each_operand(op, [&](const TensorDesc& t, size_t i) {
    if (t.alignment < dtype_size(t.dtype)) {
      return decline("needs operands aligned to their element size, ", operand_name(op, i), " is ", t.str(),
                     " at a multiple of ", t.alignment, " bytes");
    }
    return Status::ok();
  });
}

Status needs_alignment(const OpDesc& op, uint32_t bytes) {
  return for_each_operand(op, [&](const TensorDesc& t, size_t i) {
    if (t.alignment >= bytes) return Status::ok();
    return decline("needs operands aligned to ", bytes, " bytes, ", operand_name(op, i), " is aligned to ",
                   t.alignment);
  });
}

Status needs_dtype(const OpDesc& op, DType dtype) {
  if (op.outputs[0].dtype == dtype) return Status::ok();
  return decline("needs ", dtype_name(dtype), ", got ", dtype_name(op.outputs[0].dtype));
}

}  // namespace aicf
