// Rules that schemas and supported() predicates are written with. Each returns ok, or "OP: what was expected,
// what was got".
#pragma once
#include <initializer_list>
#include <sstream>
#include <string>
#include <vector>

#include "op/variant.h"

namespace aicf {

// "gemm: " followed by the parts.
template <class... Parts>
Status refuse(const OpDesc& op, const Parts&... parts) {
  std::ostringstream message;
  message << op.schema->name << ": ";
  (message << ... << parts);
  return Status::invalid(message.str());
}

// A reason why a kernel does not take a valid operation; the registry puts the kernel id in front.
template <class... Parts>
Status decline(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  return Status::unsupported(message.str());
}

// What a tensor should be: dtype and shape only. Its str() reads "f32[64, 256]".
TensorDesc expected_tensor(DType dtype, const std::vector<int64_t>& shape);

// ---- schemas ----
// `name` is the operand's name in the kernel dialect, e.g. "bias".
Status expect_tensor(const OpDesc& op, const char* name, const TensorDesc& got,
                     const TensorDesc& want);  // dtype and shape
Status expect_dtype(const OpDesc& op, const char* name, const TensorDesc& got, DType want);
Status expect_float(const OpDesc& op, const char* name, const TensorDesc& got);
Status expect_rank(const OpDesc& op, const char* name, const TensorDesc& got, int rank);
// The shape that NumPy broadcasting gives to two operands, with the dtype of `x`.
Status broadcast_shape(const OpDesc& op, const TensorDesc& x, const TensorDesc& y, TensorDesc* out);

bool same_tensor_type(const TensorDesc& a, const TensorDesc& b);  // dtype and shape

// ---- supported() ----
// Every address a multiple of the element size: what all kernels here need.
Status needs_element_alignment(const OpDesc& op);
// That, and no operand with gaps.
Status needs_dense(const OpDesc& op);
// Every operand's address a multiple of `bytes`.
Status needs_alignment(const OpDesc& op, uint32_t bytes);
// The element type of the operation: that of its first output.
Status needs_dtype(const OpDesc& op, DType dtype);

template <DType dtype>
Status supports_dtype(const OpDesc& op) {
  AICF_TRY(needs_dtype(op, dtype));
  return needs_dense(op);
}

}  // namespace aicf
