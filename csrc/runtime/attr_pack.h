// The attributes of one launch, parsed once: a fixed array indexed by key, so a kernel reads them without a
// search.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/status.h"

// key, type. Enum attributes are strings outside and small integers inside; see enum_values in attr_pack.cpp.
#define AICF_ATTR_KEYS(X)   \
  X(trans_a, Bool)          \
  X(trans_b, Bool)          \
  X(bias, Bool)             \
  X(act, Enum)              \
  X(act_grad, Enum)         \
  X(pre, Bool)              \
  X(bias_grad, Bool)        \
  X(dims, Ints)             \
  X(scale, Float)           \
  X(perm, Ints)             \
  X(reduction, Enum)        \
  X(ignore_index, Int)      \
  X(label_smoothing, Float) \
  X(groups, Ints)           \
  X(indices, Ints)          \
  X(amsgrad, Bool)          \
  X(decoupled, Bool)        \
  X(maximize, Bool)         \
  X(nesterov, Bool)         \
  X(momentum, Bool)         \
  X(classes, Int)           \
  X(code, Int)

namespace aicf {

enum class AttrType : uint8_t { Bool, Int, Float, Enum, Ints };
enum class AttrKey : uint8_t {
#define X(name, type) name,
  AICF_ATTR_KEYS(X)
#undef X
      Count
};
constexpr size_t kAttrCount = static_cast<size_t>(AttrKey::Count);

// Values of `act` and `act_grad`, and of `reduction`, in the order of their names.
enum class Act : int64_t { None, Relu, Gelu, GeluTanh, Silu, Tanh, Sigmoid };
enum class Reduction : int64_t { Mean, Sum };

AttrType attr_type(AttrKey key);
const char* attr_name(AttrKey key);
bool parse_attr_key(const std::string& name, AttrKey* out);
constexpr uint32_t attr_bit(AttrKey key) { return 1u << static_cast<uint32_t>(key); }

class AttrPack {
 public:
  bool has(AttrKey key) const { return present_ & attr_bit(key); }
  uint32_t present() const { return present_; }
  // Absent attributes read as false, 0, 0.0, the first enum value, and the empty list.
  bool flag(AttrKey key) const { return at(key).i != 0; }
  int64_t integer(AttrKey key) const { return at(key).i; }
  double number(AttrKey key) const { return at(key).f; }
  Act act(AttrKey key) const { return static_cast<Act>(at(key).i); }
  Reduction reduction() const { return static_cast<Reduction>(at(AttrKey::reduction).i); }
  const std::vector<int64_t>& ints(AttrKey key) const { return at(key).ints; }

  // Each refuses a key of another type; set_enum refuses a value the key does not have, naming those it has.
  Status set_bool(AttrKey key, bool v);
  Status set_int(AttrKey key, int64_t v);
  Status set_float(AttrKey key, double v);
  Status set_enum(AttrKey key, const std::string& v);
  Status set_ints(AttrKey key, std::vector<int64_t> v);

 private:
  struct Value {
    int64_t i = 0;
    double f = 0;
    std::vector<int64_t> ints;
  };
  const Value& at(AttrKey key) const { return values_[static_cast<size_t>(key)]; }
  Status claim(AttrKey key, AttrType type, Value** out);
  std::array<Value, kAttrCount> values_;
  uint32_t present_ = 0;
};

}  // namespace aicf
