// What must hold before any kernel sees a description, whoever wrote it: after these checks no launch can
// leave its tensors.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "op/variant.h"

namespace aicf {

// A contiguous tensor without memory. Refuses rank above kMaxRank, negative dimensions and sizes that
// overflow 63 bits.
Status make_tensor(DType dtype, const std::vector<int64_t>& shape, TensorDesc* out);
// Gives `t` strides, in elements; refuses any number of them but one for each dimension. check_span and
// check_layout judge what they are.
Status set_strides(const std::vector<int64_t>& strides, TensorDesc* t);
// No stride below 0, and a span that 63 bits can count.
Status check_span(const TensorDesc& t);

// The largest power of two, at most kPlannedAlignment, that divides the address; kPlannedAlignment for null.
uint32_t address_alignment(const void* data);

// Rank, dimensions, sizes and strides of every operand: what its row in the schema takes, and for results no
// two elements in one place. Needs no memory.
Status check_layout(const OpDesc& op);
// check_layout, then check_op: all that can be said of an operation without memory.
Status check_use(const OpDesc& op);
// No output overlaps another output, or an input, except exactly where the schema allows it. Spans are
// compared, and where they meet, the columns in rows of one pitch: other interleaved operands count as
// overlapping.
Status check_aliasing(const OpDesc& op);
// The same, where `allowed` says instead of the schema which output may be the memory of which input.
Status check_aliasing(const OpDesc& op, const std::function<bool(size_t out, size_t in)>& allowed);

// "cpu" or "cuda:0".
std::string device_name(DeviceType type, int index);

// "input 2" or "output 0": operands are counted inputs first.
std::string operand_name(const OpDesc& op, size_t operand);
inline size_t operand_count(const OpDesc& op) { return op.inputs.size() + op.outputs.size(); }
inline const TensorDesc& operand(const OpDesc& op, size_t i) {
  return i < op.inputs.size() ? op.inputs[i] : op.outputs[i - op.inputs.size()];
}

// Whether [a, a + a_bytes) and [b, b + b_bytes) share a byte.
bool overlaps(const void* a, size_t a_bytes, const void* b, size_t b_bytes);

}  // namespace aicf
