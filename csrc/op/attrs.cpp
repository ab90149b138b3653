#include "op/attrs.h"

#include <cmath>
#include <cstring>

namespace aicf {
namespace {

const char* type_name(AttrType type) {
  switch (type) {
    case AttrType::Bool:
      return "a bool";
    case AttrType::Int:
      return "an int";
    case AttrType::Float:
      return "a float";
    case AttrType::Enum:
    case AttrType::Text:
      return "a string";
    case AttrType::Ints:
      return "a list of ints";
    case AttrType::Texts:
      return "a list of strings";
  }
  return "";
}

std::string list(Names names) {
  std::string text;
  for (const char* name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

}  // namespace

const Attrs::Value* Attrs::find(const char* name) const {
  for (const Value& value : values_)
    if (value.row->name == name || !std::strcmp(value.row->name, name)) return &value;
  return nullptr;
}

const std::vector<int64_t>& Attrs::get(const Attr<std::vector<int64_t>>& attr) const {
  static const std::vector<int64_t> none;
  const Value* value = find(attr.name);
  return value ? value->ints : none;
}

const std::string& Attrs::get(const Attr<std::string>& attr) const {
  static const std::string none;
  const Value* value = find(attr.name);
  return value ? value->text : none;
}

const std::vector<std::string>& Attrs::get(const Attr<std::vector<std::string>>& attr) const {
  static const std::vector<std::string> none;
  const Value* value = find(attr.name);
  return value ? value->texts : none;
}

Status Attrs::claim(const AttrRow& row, AttrType type, Value** out) {
  if (row.type != type)
    return Status::invalid("expected " + std::string(type_name(row.type)) + ", got " + type_name(type));
  Value value{};
  value.row = &row;
  values_.push_back(std::move(value));
  *out = &values_.back();
  return Status::ok();
}

Status Attrs::set_bool(const AttrRow& row, bool v) {
  Value* value = nullptr;
  AICF_TRY(claim(row, AttrType::Bool, &value));
  value->integer = v;
  return Status::ok();
}

Status Attrs::set_int(const AttrRow& row, int64_t v) {
  Value* value = nullptr;
  AICF_TRY(claim(row, AttrType::Int, &value));
  value->integer = v;
  return Status::ok();
}

Status Attrs::set_float(const AttrRow& row, double v) {
  if (!std::isfinite(v)) return Status::invalid("expected a finite number, got " + std::to_string(v));
  Value* value = nullptr;
  AICF_TRY(claim(row, AttrType::Float, &value));
  value->number = v;
  return Status::ok();
}

Status Attrs::set_enum(const AttrRow& row, const std::string& v) {
  Value* value = nullptr;
  AICF_TRY(claim(row, AttrType::Enum, &value));
  for (size_t i = 0; i < row.names->size(); ++i) {
    if ((*row.names)[i] != v) continue;
    value->integer = static_cast<int64_t>(i);
    return Status::ok();
  }
  return Status::invalid("expected one of " + list(*row.names) + "; got '" + v + "'");
}

Status Attrs::set_ints(const AttrRow& row, std::vector<int64_t> v) {
  Value* value = nullptr;
  AICF_TRY(claim(row, AttrType::Ints, &value));
  value->ints = std::move(v);
  return Status::ok();
}

Status Attrs::set_text(const AttrRow& row, std::string v) {
  Value* value = nullptr;
  AICF_TRY(claim(row, AttrType::Text, &value));
  value->text = std::move(v);
  return Status::ok();
}

Status Attrs::set_texts(const AttrRow& row, std::vector<std::string> v) {
  Value* value = nullptr;
  AICF_TRY(claim(row, AttrType::Texts, &value));
  value->texts = std::move(v);
  return Status::ok();
}

}  // namespace aicf
