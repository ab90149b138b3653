#include "op/tensor_desc.h"

#include <algorithm>

namespace aicf {
namespace {

struct DTypeRow {
  DType dtype;
  const char* name;
  size_t size;  // bytes
};

constexpr DTypeRow kDTypes[] = {
    {DType::F32, "f32", 4}, {DType::F64, "f64", 8}, {DType::F16, "f16", 2}, {DType::BF16, "bf16", 2},
    {DType::I64, "i64", 8}, {DType::I32, "i32", 4}, {DType::I1, "i1", 1},
};

std::string list(const int64_t* values, int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return text + "]";
}

constexpr bool rows_in_enum_order() {
  for (size_t i = 0; i < sizeof(kDTypes) / sizeof(kDTypes[0]); ++i)
    if (static_cast<size_t>(kDTypes[i].dtype) != i) return false;
  return true;
}
static_assert(rows_in_enum_order(), "kDTypes is indexed by DType");

}  // namespace

size_t dtype_size(DType t) { return kDTypes[static_cast<size_t>(t)].size; }
const char* dtype_name(DType t) { return kDTypes[static_cast<size_t>(t)].name; }

bool parse_dtype(const std::string& text, DType* out) {
  for (const DTypeRow& row : kDTypes) {
    if (text != row.name) continue;
    *out = row.dtype;
    return true;
  }
  return false;
}

bool TensorDesc::contiguous() const {
  if (numel() == 0) return true;
  int64_t expected = 1;
  for (int i = rank - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != expected) return false;  // the stride of one element is never used
    expected *= shape[i];
  }
  return true;
}

size_t TensorDesc::span_bytes() const {
  if (numel() == 0) return 0;
  int64_t last = 0;
  for (int i = 0; i < rank; ++i) last += (shape[i] - 1) * strides[i];
  return static_cast<size_t>(last + 1) * dtype_size(dtype);
}

bool TensorDesc::same_layout(const TensorDesc& o) const {
  if (contiguous() && o.contiguous()) return true;
  if (!same_shape(o)) return false;
  for (int i = 0; i < rank; ++i)
    if (shape[i] > 1 && strides[i] != o.strides[i]) return false;
  return true;
}

std::vector<int> TensorDesc::by_stride() const {
  std::vector<int> order;
  for (int i = 0; i < rank; ++i)
    if (shape[i] > 1) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return strides[a] < strides[b]; });
  return order;
}

std::string TensorDesc::str() const { return dtype_name(dtype) + list(shape, rank); }
std::string TensorDesc::strides_str() const { return list(strides, rank); }

}  // namespace aicf
