// Attributes of an op: each is declared once, with its type, beside the kernels that read it.
//
//   constexpr Attr<bool> kTransA{"trans_a", false};
//   op.attrs.get(kTransA)
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "op/status.h"

namespace aicf {

enum class AttrType : uint8_t { Bool, Int, Float, Enum, Ints, Text, Texts };

using Names = const std::vector<const char*>&;

// What an op says of an attribute, whatever its type is in C++.
struct AttrRow {
  const char* name;
  AttrType type;
  bool required;
  bool has_default;     // else the attribute may be absent and then means nothing
  int64_t integer = 0;  // the default of a bool, an int, an enum (the position of its name)
  double number = 0;    // the default of a float
  const std::vector<const char*>* names = nullptr;  // of an enum
};

// T: bool, int64_t, double, std::vector<int64_t>, std::string (any text, without a default), a list of such
// texts, or an enum class for which names_of(T{}) gives the texts in the order of its values.
template <class T>
struct Attr {
  const char* name;
  std::optional<T> fallback;

  AttrRow row(bool required) const {
    AttrRow r{name, AttrType::Ints, required, fallback.has_value()};
    if constexpr (std::is_same_v<T, bool>) {
      r.type = AttrType::Bool;
      r.integer = fallback.value_or(false);
    } else if constexpr (std::is_same_v<T, int64_t>) {
      r.type = AttrType::Int;
      r.integer = fallback.value_or(0);
    } else if constexpr (std::is_same_v<T, double>) {
      r.type = AttrType::Float;
      r.number = fallback.value_or(0);
    } else if constexpr (std::is_enum_v<T>) {
      r.type = AttrType::Enum;
      r.integer = static_cast<int64_t>(fallback.value_or(T{}));
      r.names = &names_of(T{});
    } else if constexpr (std::is_same_v<T, std::string>) {
      r.type = AttrType::Text;
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      r.type = AttrType::Texts;
    }
    return r;
  }
};

template <class T>
AttrRow required(const Attr<T>& attr) {
  return attr.row(true);
}
template <class T>
AttrRow optional(const Attr<T>& attr) {
  return attr.row(false);
}

// The attributes of one use of an op. Rows belong to its schema, which outlives all uses.
class Attrs {
 public:
  // What stands for `attr`: its value here, or its default; of one that has none, a zero.
  template <class T>
  T get(const Attr<T>& attr) const {
    const Value* value = find(attr.name);
    if (!value) return attr.fallback.value_or(T{});
    if constexpr (std::is_same_v<T, double>)
      return value->number;
    else
      return static_cast<T>(value->integer);
  }
  const std::vector<int64_t>& get(const Attr<std::vector<int64_t>>& attr) const;
  const std::string& get(const Attr<std::string>& attr) const;
  const std::vector<std::string>& get(const Attr<std::vector<std::string>>& attr) const;
  template <class T>
  bool has(const Attr<T>& attr) const {
    return find(attr.name) != nullptr;
  }
  bool has(const char* name) const { return find(name) != nullptr; }

  // Each refuses an attribute of another type; set_enum refuses a value that it does not have, naming those
  // it has.
  Status set_bool(const AttrRow& row, bool v);
  Status set_int(const AttrRow& row, int64_t v);
  Status set_float(const AttrRow& row, double v);
  Status set_enum(const AttrRow& row, const std::string& v);
  Status set_ints(const AttrRow& row, std::vector<int64_t> v);
  Status set_text(const AttrRow& row, std::string v);
  Status set_texts(const AttrRow& row, std::vector<std::string> v);

 private:
  struct Value {
    const AttrRow* row = nullptr;
    int64_t integer = 0;
    double number = 0;
    std::vector<int64_t> ints;
    std::string text;
    std::vector<std::string> texts;
  };
  const Value* find(const char* name) const;
  Status claim(const AttrRow& row, AttrType type, Value** out);
  std::vector<Value> values_;
};

}  // namespace aicf
