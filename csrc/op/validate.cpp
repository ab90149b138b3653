#include "op/validate.h"

#include <cstdint>

namespace aicf {
namespace {

std::string list(const int64_t* values, size_t count) {
  std::string text = "[";
  for (size_t i = 0; i < count; ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return text + "]";
}

uintptr_t address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

Status check_shape(DType dtype, const int64_t* shape, size_t rank) {
  if (rank > static_cast<size_t>(kMaxRank))
    return Status::invalid("rank " + std::to_string(rank) + " is above " + std::to_string(kMaxRank) +
                           ", the highest that kernels take");
  int64_t bytes =
      static_cast<int64_t>(dtype_size(dtype));  // as if no dimension were zero: partial products overflow too
  for (size_t i = 0; i < rank; ++i) {
    if (shape[i] < 0)
      return Status::invalid("dimension " + std::to_string(i) + " is negative in shape " + list(shape, rank));
    if (shape[i] > 1 && __builtin_mul_overflow(bytes, shape[i], &bytes))
      return Status::invalid("shape " + list(shape, rank) + " of " + dtype_name(dtype) +
                             " has more than 2^63 bytes");
  }
  return Status::ok();
}

Status check_strides(const TensorDesc& t) {
  if (t.contiguous()) return Status::ok();
  int64_t expected[kMaxRank];
  int64_t step = 1;
  for (int i = t.rank - 1; i >= 0; --i) {
    expected[i] = step;
    step *= t.shape[i];
  }
  const size_t rank = static_cast<size_t>(t.rank);
  return Status::invalid("non-contiguous: got strides " + list(t.strides, rank) + " for shape " +
                         list(t.shape, rank) + ", expected " + list(expected, rank) + "; call .contiguous()");
}

Status named(const OpDesc& op, size_t i, const Status& status) {
  return status.is_ok() ? status : status.at(operand_name(op, i));
}

}  // namespace

Status make_tensor(DType dtype, const std::vector<int64_t>& shape, TensorDesc* out) {
  AICF_TRY(check_shape(dtype, shape.data(), shape.size()));
  TensorDesc t;
  t.dtype = dtype;
  t.rank = static_cast<int32_t>(shape.size());
  int64_t step = 1;
  for (int i = t.rank - 1; i >= 0; --i) {
    t.shape[i] = shape[static_cast<size_t>(i)];
    t.strides[i] = step;
    step *= t.shape[i];
  }
  *out = t;
  return Status::ok();
}

uint32_t address_alignment(const void* data) {
  const uintptr_t bits = address(data) | kPlannedAlignment;
  return static_cast<uint32_t>(bits & (~bits + 1));  // the lowest bit that is set
}

Status check_layout(const OpDesc& op) {
  for (size_t i = 0; i < operand_count(op); ++i) {
    const TensorDesc& t = operand(op, i);
    AICF_TRY(named(op, i, check_shape(t.dtype, t.shape, static_cast<size_t>(t.rank))));
    AICF_TRY(named(op, i, check_strides(t)));
  }
  return Status::ok();
}

Status check_aliasing(const OpDesc& op) {
  for (size_t out = 0; out < op.outputs.size(); ++out) {
    const TensorDesc& o = op.outputs[out];
    const std::string name = "output " + std::to_string(out);
    for (size_t other = out + 1; other < op.outputs.size(); ++other)
      if (overlaps(o.data, o.bytes(), op.outputs[other].data, op.outputs[other].bytes()))
        return Status::invalid(name + " overlaps output " + std::to_string(other) +
                               "; give each its own memory");
    for (size_t in = 0; in < op.inputs.size(); ++in) {
      const TensorDesc& i = op.inputs[in];
      if (!overlaps(o.data, o.bytes(), i.data, i.bytes())) continue;
      if (o.data != i.data || o.bytes() != i.bytes())
        return Status::invalid(name + " overlaps input " + std::to_string(in) +
                               " in part; give it its own memory");
      if (!may_alias(op, out, in))
        return Status::invalid(name + " is the memory of input " + std::to_string(in) + ", and " +
                               op.schema->name + " cannot run in place on it; give it its own memory");
    }
  }
  return Status::ok();
}

std::string device_name(DeviceType type, int index) {
  return type == DeviceType::Cpu ? "cpu" : "cuda:" + std::to_string(index);
}

std::string operand_name(const OpDesc& op, size_t i) {
  return i < op.inputs.size() ? "input " + std::to_string(i)
                              : "output " + std::to_string(i - op.inputs.size());
}

bool overlaps(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  if (!a_bytes || !b_bytes) return false;
  return address(a) < address(b) + b_bytes && address(b) < address(a) + a_bytes;
}

}  // namespace aicf
