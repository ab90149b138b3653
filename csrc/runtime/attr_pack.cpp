#include "runtime/attr_pack.h"

#include <cmath>

namespace aicf {
namespace {

struct KeyRow {
  const char* name;
  AttrType type;
};

constexpr KeyRow kKeys[] = {
#define X(name, type) {#name, AttrType::type},
    AICF_ATTR_KEYS(X)
#undef X
};
static_assert(kAttrCount <= 32, "present_ has one bit per key");

const std::vector<std::string>& enum_values(AttrKey key) {
  static const std::vector<std::string> acts = {"none", "relu", "gelu",   "gelu_tanh",
                                                "silu", "tanh", "sigmoid"};
  static const std::vector<std::string> reductions = {"mean", "sum"};
  return key == AttrKey::reduction ? reductions : acts;
}

const char* type_name(AttrType type) {
  switch (type) {
    case AttrType::Bool:
      return "a bool";
    case AttrType::Int:
      return "an int";
    case AttrType::Float:
      return "a float";
    case AttrType::Enum:
      return "a string";
    case AttrType::Ints:
      return "a list of ints";
  }
  return "";
}

std::string quoted(AttrKey key) { return "attribute '" + std::string(attr_name(key)) + "'"; }

}  // namespace

AttrType attr_type(AttrKey key) { return kKeys[static_cast<size_t>(key)].type; }
const char* attr_name(AttrKey key) { return kKeys[static_cast<size_t>(key)].name; }

bool parse_attr_key(const std::string& name, AttrKey* out) {
  for (size_t i = 0; i < kAttrCount; ++i) {
    if (name != kKeys[i].name) continue;
    *out = static_cast<AttrKey>(i);
    return true;
  }
  return false;
}

Status AttrPack::claim(AttrKey key, AttrType type, Value** out) {
  if (attr_type(key) != type)
    return Status::invalid(quoted(key) + " is " + type_name(attr_type(key)) + ", got " + type_name(type));
  present_ |= attr_bit(key);
  *out = &values_[static_cast<size_t>(key)];
  return Status::ok();
}

Status AttrPack::set_bool(AttrKey key, bool v) {
  Value* value = nullptr;
  AICF_TRY(claim(key, AttrType::Bool, &value));
  value->i = v;
  return Status::ok();
}

Status AttrPack::set_int(AttrKey key, int64_t v) {
  Value* value = nullptr;
  AICF_TRY(claim(key, AttrType::Int, &value));
  value->i = v;
  return Status::ok();
}

Status AttrPack::set_float(AttrKey key, double v) {
  if (!std::isfinite(v))
    return Status::invalid(quoted(key) + " must be a finite number, got " + std::to_string(v));
  Value* value = nullptr;
  AICF_TRY(claim(key, AttrType::Float, &value));
  value->f = v;
  return Status::ok();
}

Status AttrPack::set_enum(AttrKey key, const std::string& v) {
  Value* value = nullptr;
  AICF_TRY(claim(key, AttrType::Enum, &value));
  const std::vector<std::string>& names = enum_values(key);
  std::string known;
  for (size_t i = 0; i < names.size(); ++i) {
    known += (i ? ", " : "") + names[i];
    if (names[i] != v) continue;
    value->i = static_cast<int64_t>(i);
    return Status::ok();
  }
  return Status::invalid(quoted(key) + " is one of " + known + "; got '" + v + "'");
}

Status AttrPack::set_ints(AttrKey key, std::vector<int64_t> v) {
  Value* value = nullptr;
  AICF_TRY(claim(key, AttrType::Ints, &value));
  value->ints = std::move(v);
  return Status::ok();
}

}  // namespace aicf
