#include "op/validate.h"

#include <algorithm>
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

std::string strides_of(const TensorDesc& t) {
  return "strides " + t.strides_str() + " for shape " + list(t.shape, static_cast<size_t>(t.rank));
}

// "a, b, saved strided and bias dense"
std::string layouts(const std::vector<OperandRow>& rows) {
  std::string text;
  for (const Layout layout : {Layout::Strided, Layout::Dense}) {
    std::string names;
    for (const OperandRow& row : rows)
      if (row.layout == layout) names += (names.empty() ? "" : ", ") + std::string(row.name);
    if (names.empty()) continue;
    text += (text.empty() ? "" : " and ") + names + (layout == Layout::Dense ? " dense" : " strided");
  }
  return text;
}

Status check_dense(const OpDesc& op, size_t operand, const TensorDesc& t) {
  if (t.contiguous()) return Status::ok();
  TensorDesc expected = t;
  int64_t step = 1;
  for (int i = t.rank - 1; i >= 0; --i) {
    expected.strides[i] = step;
    step *= t.shape[i];
  }
  const OpSchema& schema = *op.schema;
  const bool input = operand < op.inputs.size();
  const std::string name = input ? op.in_name(operand) : op.out_name(operand - op.inputs.size());
  return Status::invalid("non-contiguous: got " + strides_of(t) + ", expected " + expected.strides_str() +
                         "; call .contiguous() on " + name + ": " + schema.name +
                         (input ? " takes " : " gives ") + layouts(input ? schema.inputs : schema.outputs));
}

// Dimensions in the order of their strides, each beyond all that the ones below it reach.
Status check_apart(const TensorDesc& t) {
  if (t.numel() == 0) return Status::ok();
  int64_t reached = 1;  // elements
  for (const int d : t.by_stride()) {
    if (t.strides[d] < reached)
      return Status::invalid("a result needs a place for each element: got " + strides_of(t) +
                             ", where the stride of dimension " + std::to_string(d) + " is below " +
                             std::to_string(reached));
    reached += (t.shape[d] - 1) * t.strides[d];
  }
  return Status::ok();
}

Status check_strides(const OpDesc& op, size_t i) {
  const TensorDesc& t = operand(op, i);
  const bool input = i < op.inputs.size();
  const OperandRow* row = input ? op.in_row(i) : op.out_row(i - op.inputs.size());
  if (!row || row->layout == Layout::Dense) return check_dense(op, i, t);
  AICF_TRY(check_span(t));
  return input ? Status::ok() : check_apart(t);
}

// Whether `o` and `i` have every element in the same place.
bool same_place(const TensorDesc& o, const TensorDesc& i) {
  return o.data == i.data && o.span_bytes() == i.span_bytes() && o.same_layout(i);
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

Status set_strides(const std::vector<int64_t>& strides, TensorDesc* t) {
  if (strides.size() != static_cast<size_t>(t->rank))
    return Status::invalid("strides: expected one for each of " + std::to_string(t->rank) +
                           " dimensions, got " + std::to_string(strides.size()));
  std::copy(strides.begin(), strides.end(), t->strides);
  return Status::ok();
}

Status check_span(const TensorDesc& t) {
  if (t.contiguous()) return Status::ok();
  int64_t reached = 1, bytes = 0;
  for (int i = 0; i < t.rank; ++i) {
    if (t.shape[i] <= 1) continue;
    if (t.strides[i] < 0)
      return Status::invalid("a stride is 0 or more: got " + strides_of(t) + "; pass a copy");
    int64_t step = 0;
    if (__builtin_mul_overflow(t.shape[i] - 1, t.strides[i], &step) ||
        __builtin_add_overflow(reached, step, &reached) ||
        __builtin_mul_overflow(reached, static_cast<int64_t>(dtype_size(t.dtype)), &bytes))
      return Status::invalid("the " + strides_of(t) + " of " + dtype_name(t.dtype) +
                             " span more than 2^63 bytes");
  }
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
    AICF_TRY(named(op, i, check_strides(op, i)));
  }
  return Status::ok();
}

Status check_use(const OpDesc& op) {
  AICF_TRY(check_layout(op));
  return check_op(op);
}

namespace {

// The bytes from the first element on that `t` touches of each `pitch` bytes; 0 if it does not lie in such
// rows.
size_t width_in(const TensorDesc& t, size_t pitch) {
  const size_t size = dtype_size(t.dtype);
  size_t width = size;
  for (int i = 0; i < t.rank; ++i) {
    if (t.shape[i] == 1) continue;
    if (t.strides[i] < 0) return 0;
    const size_t stride = static_cast<size_t>(t.strides[i]) * size;
    if (stride % pitch == 0)
      continue;
    else if (stride > pitch)
      return 0;
    width += static_cast<size_t>(t.shape[i] - 1) * stride;
  }
  return width <= pitch ? width : 0;
}

// Whether two tensors have different columns of rows of one pitch, as the parts of a projection have.
bool in_different_columns(const TensorDesc& a, const TensorDesc& b) {
  for (const TensorDesc* t : {&a, &b})
    for (int i = 0; i < t->rank; ++i) {
      if (t->shape[i] == 1 || t->strides[i] <= 0) continue;
      const size_t pitch = static_cast<size_t>(t->strides[i]) * dtype_size(t->dtype);
      const size_t left = width_in(a, pitch), right = width_in(b, pitch);
      if (!left || !right) continue;
      const size_t apart =
          address(b.data) >= address(a.data)
              ? (address(b.data) - address(a.data)) % pitch
              : (pitch - (address(a.data) - address(b.data)) % pitch) % pitch;  // from a's column to b's
      if (left <= apart && apart + right <= pitch) return true;
    }
  return false;
}

bool may_meet(const TensorDesc& a, const TensorDesc& b) {
  return overlaps(a.data, a.span_bytes(), b.data, b.span_bytes()) && !in_different_columns(a, b);
}

}  // namespace

Status check_aliasing(const OpDesc& op) {
  return check_aliasing(op, [&op](size_t out, size_t in) { return may_alias(op, out, in); });
}

Status check_aliasing(const OpDesc& op, const std::function<bool(size_t out, size_t in)>& allowed) {
  for (size_t out = 0; out < op.outputs.size(); ++out) {
    const TensorDesc& o = op.outputs[out];
    const std::string name = "output " + std::to_string(out);
    for (size_t other = out + 1; other < op.outputs.size(); ++other)
      if (may_meet(o, op.outputs[other]))
        return Status::invalid(name + " overlaps output " + std::to_string(other) +
                               "; give each its own memory");
    for (size_t in = 0; in < op.inputs.size(); ++in) {
      const TensorDesc& i = op.inputs[in];
      if (!may_meet(o, i)) continue;
      if (!same_place(o, i))
        return Status::invalid(name + " overlaps input " + std::to_string(in) +
                               " in part; give it its own memory");
      if (!allowed(out, in))
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
