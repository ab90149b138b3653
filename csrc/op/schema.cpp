#include "op/schema.h"

#include <cstring>
#include <numeric>
#include <stdexcept>

namespace aicf {
namespace {

std::string plural(size_t n, const char* noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

// The tensors of row `name`.
Tensors find(const std::vector<OperandRow>& rows, const std::vector<int64_t>& counts,
             const std::vector<TensorDesc>& tensors, const char* name) {
  size_t first = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t count = static_cast<size_t>(counts[i]);
    if (rows[i].name == name || !std::strcmp(rows[i].name, name)) return {tensors.data() + first, count};
    first += count;
  }
  throw std::logic_error("no operand is called '" + std::string(name) + "'");
}

const OperandRow* row_called(const std::vector<OperandRow>& rows, const char* name) {
  for (const OperandRow& row : rows)
    if (!std::strcmp(row.name, name)) return &row;
  return nullptr;
}

bool is_list(Count count) { return count == Count::Many || count == Count::Any; }

// Row and place in it of a flat position.
struct Place {
  const OperandRow* row;
  int64_t index;
};

Place place_of(const std::vector<OperandRow>& rows, const std::vector<int64_t>& counts, size_t position) {
  int64_t left = static_cast<int64_t>(position);
  for (size_t i = 0; i < rows.size() && i < counts.size(); ++i) {
    if (left < counts[i]) return {&rows[i], left};
    left -= counts[i];
  }
  return {nullptr, left};
}

std::string name_at(const Place& place, const char* prime) {
  if (!place.row) return std::to_string(place.index);
  const std::string name = place.row->name + std::string(prime);
  return is_list(place.row->count) ? name + "[" + std::to_string(place.index) + "]" : name;
}

// "a, b, [bias], p..."
std::string list(const std::vector<OperandRow>& rows) {
  std::string text;
  for (const OperandRow& row : rows) {
    const std::string name = row.name;
    text += (text.empty() ? "" : ", ") + (row.count == Count::Optional ? "[" + name + "]"
                                          : is_list(row.count)         ? name + "..."
                                                                       : name);
  }
  return text;
}

// How many tensors may stand for the rows in their order: one for each, and one that is optional at the end
// may be missing. False where the order does not say which is which.
bool range_in_order(const std::vector<OperandRow>& rows, size_t* least) {
  *least = rows.size();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].count == Count::One) continue;
    if (rows[i].count != Count::Optional || i + 1 < rows.size()) return false;
    *least = i;
  }
  return true;
}

std::vector<int64_t> counts_in_order(size_t tensors, size_t rows) {
  std::vector<int64_t> counts(tensors, 1);
  counts.resize(rows, 0);
  return counts;
}

Status check_counts(const OpDesc& op, const std::vector<OperandRow>& rows, const std::vector<int64_t>& counts,
                    size_t tensors) {
  const std::string name = op.schema->name;
  if (counts.size() != rows.size())
    return Status::invalid(name + ": expected a count for each of " + list(rows) + ", got " +
                           std::to_string(counts.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t most = is_list(rows[i].count) ? INT64_MAX : 1;
    const int64_t least = rows[i].count == Count::One ? 1 : 0;
    if (counts[i] < least || counts[i] > most)
      return Status::invalid(name + ": " + rows[i].name + ": expected " +
                             (least ? "one tensor" : "one tensor or none") + ", got " +
                             std::to_string(counts[i]));
  }
  if (std::accumulate(counts.begin(), counts.end(), int64_t{0}) != static_cast<int64_t>(tensors))
    return Status::invalid(name + ": the counts of " + list(rows) + " do not add up to " +
                           plural(tensors, "tensor"));
  return Status::ok();
}

Status check_attrs(const OpDesc& op) {
  for (const AttrRow& row : op.schema->attrs)
    if (row.required && !op.attrs.has(row.name))
      return Status::invalid(std::string(op.schema->name) + " needs the attribute " + row.name);
  return Status::ok();
}

}  // namespace

Tensors OpDesc::ins(const char* name) const { return find(schema->inputs, input_counts, inputs, name); }
Tensors OpDesc::outs(const char* name) const { return find(schema->outputs, output_counts, outputs, name); }

std::string OpDesc::in_name(size_t i) const { return name_at(place_of(schema->inputs, input_counts, i), ""); }

std::string OpDesc::out_name(size_t i) const {
  const Place place = place_of(schema->outputs, output_counts, i);
  return name_at(place, place.row && row_called(schema->inputs, place.row->name) ? "'" : "");
}

const OperandRow* OpDesc::in_row(size_t i) const { return place_of(schema->inputs, input_counts, i).row; }
const OperandRow* OpDesc::out_row(size_t i) const { return place_of(schema->outputs, output_counts, i).row; }

const AttrRow* OpSchema::attr(const std::string& name) const {
  for (const AttrRow& row : attrs)
    if (name == row.name) return &row;
  return nullptr;
}

Status count_operands(OpDesc* op) {
  const OpSchema& schema = *op->schema;
  const std::string name = schema.name;
  size_t least_inputs = 0, least_outputs = 0;
  if (!range_in_order(schema.inputs, &least_inputs) || !range_in_order(schema.outputs, &least_outputs))
    return Status::invalid(name + " takes " + list(schema.inputs) + " and gives " + list(schema.outputs) +
                           ": say by name which tensors are which");
  const auto fits = [](size_t given, size_t least, size_t most) { return given >= least && given <= most; };
  if (!fits(op->inputs.size(), least_inputs, schema.inputs.size()) ||
      !fits(op->outputs.size(), least_outputs, schema.outputs.size()))
    return Status::invalid(name + ": expected " + plural(schema.inputs.size(), "input") + " and " +
                           plural(schema.outputs.size(), "output") + ", got " +
                           plural(op->inputs.size(), "input") + " and " +
                           plural(op->outputs.size(), "output"));
  op->input_counts = counts_in_order(op->inputs.size(), schema.inputs.size());
  op->output_counts = counts_in_order(op->outputs.size(), schema.outputs.size());
  return Status::ok();
}

Status check_op(const OpDesc& op) {
  AICF_TRY(check_attrs(op));
  AICF_TRY(check_counts(op, op.schema->inputs, op.input_counts, op.inputs.size()));
  AICF_TRY(check_counts(op, op.schema->outputs, op.output_counts, op.outputs.size()));
  for (size_t i = 0; i < op.schema->outputs.size(); ++i) {
    const OperandRow& row = op.schema->outputs[i];
    if (row.count != Count::Many) continue;
    const size_t expected = op.ins(row.name).size();
    if (static_cast<size_t>(op.output_counts[i]) != expected)
      return Status::invalid(std::string(op.schema->name) + ": " + row.name + "': expected " +
                             plural(expected, "tensor") + ", as many as " + row.name + " has, got " +
                             std::to_string(op.output_counts[i]));
  }
  return op.schema->check(op);
}

bool may_alias(const OpDesc& op, size_t out, size_t in) {
  const Place result = place_of(op.schema->outputs, op.output_counts, out);
  const Place operand = place_of(op.schema->inputs, op.input_counts, in);
  if (!result.row || !operand.row || result.index != operand.index) return false;
  if (!op.outputs[out].same_layout(op.inputs[in])) return false;
  for (const InPlace& pair : op.schema->in_place)
    if (!std::strcmp(pair.out, result.row->name) && !std::strcmp(pair.in, operand.row->name))
      return !op.schema->may_alias || op.schema->may_alias(op, out, in);
  return false;
}

}  // namespace aicf
