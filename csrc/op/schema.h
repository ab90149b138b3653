// What an operation is (OpSchema), and one use of it (OpDesc).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "op/attrs.h"
#include "op/tensor_desc.h"

namespace aicf {

struct OpSchema;

// How many tensors an operand or a result stands for.
// Any: of results alone; as many as the use says.
enum class Count : uint8_t { One, Optional, Many, Any };

// What an operation takes of an operand or a result: row-major without gaps, or any strides that
// check_layout accepts. A kernel may still decline some of them.
enum class Layout : uint8_t { Dense, Strided };

// {"x"}, maybe("bias"), many("p"), any("y"), strided("a"), strided(maybe("saved")).
struct OperandRow {
  const char* name;
  Count count = Count::One;
  Layout layout = Layout::Dense;
};
inline OperandRow maybe(const char* name) { return {name, Count::Optional}; }
inline OperandRow many(const char* name) { return {name, Count::Many}; }
inline OperandRow any(const char* name) { return {name, Count::Any}; }
inline OperandRow strided(OperandRow row) { return {row.name, row.count, Layout::Strided}; }
inline OperandRow strided(const char* name) { return {name, Count::One, Layout::Strided}; }

// Operands in a row.
class Tensors {
 public:
  Tensors(const TensorDesc* first, size_t count) : first_(first), count_(count) {}
  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  const TensorDesc& operator[](size_t i) const { return first_[i]; }
  const TensorDesc* begin() const { return first_; }
  const TensorDesc* end() const { return first_ + count_; }

 private:
  const TensorDesc* first_;
  size_t count_;
};

// A description of one launch, the same for selection, checking and running. Results are destinations.
// Tensors stand in the order of the schema's rows; the counts say how many belong to each.
struct OpDesc {
  const OpSchema* schema = nullptr;
  std::vector<TensorDesc> inputs, outputs;
  std::vector<int64_t> input_counts, output_counts;
  Attrs attrs;

  // By the name in the schema, which must have it. `ins` and `outs` give all that belong to it; `has` says
  // whether there are any; the others give the first.
  Tensors ins(const char* name) const;
  Tensors outs(const char* name) const;
  bool has_in(const char* name) const { return !ins(name).empty(); }
  bool has_out(const char* name) const { return !outs(name).empty(); }
  const TensorDesc& in(const char* name) const { return ins(name)[0]; }
  const TensorDesc& out(const char* name) const { return outs(name)[0]; }
  // "p[3]" or "bias" of operand `i` of all inputs, and "p'[3]" for outputs that share an input's name.
  std::string in_name(size_t i) const;
  std::string out_name(size_t i) const;
  // The row of operand `i` of all inputs, or of all outputs; null where the counts do not reach it.
  const OperandRow* in_row(size_t i) const;
  const OperandRow* out_row(size_t i) const;
};

// Result and operand that may be the very same memory; of several, each with its own.
struct InPlace {
  const char* out;
  const char* in;
};

// What an operation accepts, on any device: the only declaration of a kernel op. Shape rules live in `check`
// and nowhere else.
struct OpSchema {
  int32_t number;    // stable; aicf_mlir.OpKind
  const char* kind;  // its name there: "GemmEpilogue"
  const char* name;  // in the kernel dialect, without prefix: "gemm_epilogue"
  const char* doc;   // one line
  std::vector<OperandRow> inputs;
  std::vector<OperandRow> outputs;  // many() results have as many tensors as the operand of their name
  std::vector<AttrRow> attrs;
  std::vector<InPlace> in_place;
  const char* numerics;            // how it is computed, where that is not plain
  Status (*check)(const OpDesc&);  // shapes and dtypes, once the counts are right; says expected and got
  // A further condition on in-place pairs, of flat positions; null: none.
  bool (*may_alias)(const OpDesc&, size_t out, size_t in) = nullptr;
  // Its kernels are generated from an attribute: no variant is registered, and a launch brings its code.
  bool generated = false;

  const AttrRow* attr(const std::string& name) const;  // null where the op has none
};

// Gives every row of a schema its tensors, where the counts are not said: possible where each is one, the
// last perhaps optional.
Status count_operands(OpDesc* op);
// Required attributes and counts, then the schema's own rules.
Status check_op(const OpDesc& op);
// Whether output `out` may be the very same memory as input `in` (never a part of it): only where both have
// the same layout.
bool may_alias(const OpDesc& op, size_t out, size_t in);

}  // namespace aicf
