#include "op/tensor_desc.h"

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

std::string TensorDesc::str() const {
  std::string text = std::string(dtype_name(dtype)) + "[";
  for (int i = 0; i < rank; ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace aicf
