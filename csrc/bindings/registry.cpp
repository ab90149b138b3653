#include "op/registry.h"

#include "bindings/bindings.h"
#include "kernels/gemm/problem.h"
#include "op/validate.h"

namespace aicf::bindings {
namespace {

// An enum.IntEnum, so that a kind prints by name, counts as an int and pickles.
py::object make_op_kind() {
  py::dict members;
  for (const OpSchema& schema : KernelRegistry::get().schemas()) members[schema.kind] = schema.number;
  return py::module_::import("enum").attr("IntEnum")("OpKind", members, py::arg("module") = "aicf_mlir._C");
}

const char* count_name(Count count) {
  switch (count) {
    case Count::One:
      return "one";
    case Count::Optional:
      return "optional";
    case Count::Many:
      return "many";
    case Count::Any:
      break;
  }
  return "any";
}

const char* layout_name(Layout layout) { return layout == Layout::Dense ? "dense" : "strided"; }

const char* type_name(AttrType type) {
  switch (type) {
    case AttrType::Bool:
      return "bool";
    case AttrType::Int:
      return "int";
    case AttrType::Float:
      return "float";
    case AttrType::Enum:
    case AttrType::Text:
      return "str";
    case AttrType::Texts:
      return "list[str]";
    case AttrType::Ints:
      break;
  }
  return "list[int]";
}

py::object default_of(const AttrRow& row) {
  if (!row.has_default) return py::none();
  switch (row.type) {
    case AttrType::Bool:
      return py::bool_(row.integer != 0);
    case AttrType::Int:
      return py::int_(row.integer);
    case AttrType::Float:
      return py::float_(row.number);
    case AttrType::Enum:
      return py::str((*row.names)[static_cast<size_t>(row.integer)]);
    case AttrType::Ints:
    case AttrType::Text:
    case AttrType::Texts:
      break;
  }
  return py::none();
}

py::list rows_of(const std::vector<OperandRow>& operands) {
  py::list rows;
  for (const OperandRow& row : operands)
    rows.append(py::make_tuple(row.name, count_name(row.count), layout_name(row.layout)));
  return rows;
}

py::list op_schemas() {
  py::list schemas;
  for (const OpSchema& schema : KernelRegistry::get().schemas()) {
    py::dict row;
    row["number"] = schema.number;
    row["kind"] = schema.kind;
    row["name"] = schema.name;
    row["doc"] = schema.doc;
    row["numerics"] = schema.numerics;
    row["generated"] = schema.generated;
    row["inputs"] = rows_of(schema.inputs);
    row["outputs"] = rows_of(schema.outputs);
    py::list attrs, in_place;
    for (const AttrRow& attr : schema.attrs) {
      py::dict described;
      described["name"] = attr.name;
      described["type"] = type_name(attr.type);
      described["required"] = attr.required;
      described["default"] = default_of(attr);
      described["values"] = attr.names ? py::cast(*attr.names) : py::none();
      attrs.append(described);
    }
    for (const InPlace& pair : schema.in_place) in_place.append(py::make_tuple(pair.out, pair.in));
    row["attrs"] = attrs;
    row["in_place"] = in_place;
    schemas.append(row);
  }
  return schemas;
}

py::list kernel_variants() {
  py::list rows;
  for (const KernelVariant& variant : KernelRegistry::get().variants()) {
    py::dict row;
    row["name"] = variant.name;
    row["kind"] = variant.schema->number;
    row["op"] = variant.op;
    row["device"] = variant.device == DeviceType::Cpu ? "cpu" : "cuda";
    row["min_sm"] = variant.min_sm;
    row["max_sm"] = variant.max_sm;
    row["library"] = py::none();
    for (const LibraryRow& library : kLibraries)
      if (library.library == variant.library) row["library"] = library.name;
    row["built"] = variant.prepare != nullptr;
    rows.append(row);
  }
  return rows;
}

void check(py::handle kind, const py::list& inputs, const py::list& outputs, const py::dict& attrs,
           py::handle counts) {
  raise_if(check_use(parse_op(kind, inputs, outputs, attrs, counts)), Subject::Op);
}

std::vector<std::pair<size_t, size_t>> alias_pairs(py::handle kind, const py::list& inputs,
                                                   const py::list& outputs, const py::dict& attrs,
                                                   py::handle counts) {
  const OpDesc op = parse_op(kind, inputs, outputs, attrs, counts);
  raise_if(check_use(op), Subject::Op);
  std::vector<std::pair<size_t, size_t>> pairs;
  if (op.schema->in_place.empty()) return pairs;
  for (size_t out = 0; out < op.outputs.size(); ++out)
    for (size_t in = 0; in < op.inputs.size(); ++in)
      if (may_alias(op, out, in)) pairs.emplace_back(out, in);
  return pairs;
}

std::pair<std::string, size_t> select_kernel(py::handle kind, const py::list& inputs, const py::list& outputs,
                                             const py::dict& attrs, const std::string& target_name,
                                             const std::string& name, py::handle counts) {
  OpDesc op = parse_op(kind, inputs, outputs, attrs, counts);
  Target target;
  raise_if(Target::parse(target_name, &target), Subject::Op);
  for (std::vector<TensorDesc>* operands : {&op.inputs, &op.outputs})
    for (TensorDesc& t : *operands) t.device = target.device;
  raise_if(check_use(op), Subject::Op);
  const KernelVariant* variant = nullptr;
  raise_if(KernelRegistry::get().select(op, target, name, &variant), Subject::Op);
  return {name.empty() ? variant->name : name, variant->query_workspace ? variant->query_workspace(op) : 0};
}

// Why a plan that names no kernel has another one for a use that this kernel supports; empty where it has it.
std::string kernel_preference(py::handle kind, const py::list& inputs, const py::list& outputs,
                              const py::dict& attrs, const std::string& name, py::handle counts) {
  const OpDesc op = parse_op(kind, inputs, outputs, attrs, counts);
  raise_if(check_use(op), Subject::Op);
  const KernelVariant* variant = KernelRegistry::get().find(name);
  if (!variant) raise_if(Status::invalid("no kernel is called '" + name + "'"), Subject::Op);
  return variant->preferred ? variant->preferred(op).message() : "";
}

// What a kernel of the registry can choose for a use, on the device that its target names.
std::vector<std::string> kernel_choices(py::handle kind, const py::list& inputs, const py::list& outputs,
                                        const py::dict& attrs, const std::string& name, py::handle counts) {
  const OpDesc op = parse_op(kind, inputs, outputs, attrs, counts);
  raise_if(check_use(op), Subject::Op);
  const KernelVariant* variant = KernelRegistry::get().find(name);
  if (!variant) raise_if(Status::invalid("no kernel is called '" + name + "'"), Subject::Op);
  std::vector<std::string> choices;
  if (variant->choices) raise_if(variant->choices(op, &choices), Subject::Op);
  return choices;
}

py::tuple steps_of(const Matrices<const void*>& m) { return py::make_tuple(m.leading, m.outer, m.inner); }

// Of operands [..., m, k] and [..., k, n] and a dense result of their element type.
py::dict product_layout(const py::list& inputs, const py::list& outputs, const py::dict& attrs) {
  const OpDesc op = parse_op(py::str("gemm"), inputs, outputs, attrs, py::none());
  raise_if(check_use(op), Subject::Op);
  GemmProblem p{};
  raise_if(read_gemm_problem(op, &p), Subject::Op);
  py::dict row;
  row["m"] = p.m;
  row["n"] = p.n;
  row["k"] = p.k;
  row["batch"] = p.batch;
  row["inner_batch"] = p.inner_batch;
  row["trans_a"] = p.trans_a;
  row["trans_b"] = p.trans_b;
  row["a"] = steps_of(p.a);
  row["b"] = steps_of(p.b);
  return row;
}

std::vector<std::string> targets() {
  std::vector<std::string> names;
  for (const Target& target : Target::all()) names.push_back(target.str());
  return names;
}

}  // namespace

void bind_registry(py::module_& m) {
  m.def("targets", &targets);
  m.attr("OpKind") = make_op_kind();
  m.attr("MAX_RANK") = kMaxRank;
  m.def("op_schemas", &op_schemas);
  m.def("kernel_variants", &kernel_variants);
  m.def("product_layout", &product_layout, py::arg("inputs"), py::arg("outputs"), py::arg("attrs"));
  m.def("check_op", &check, py::arg("op"), py::arg("inputs"), py::arg("outputs"), py::arg("attrs"),
        py::arg("counts") = py::none());
  m.def("may_alias", &alias_pairs, py::arg("op"), py::arg("inputs"), py::arg("outputs"), py::arg("attrs"),
        py::arg("counts") = py::none());
  m.def("kernel_choices", &kernel_choices, py::arg("op"), py::arg("inputs"), py::arg("outputs"),
        py::arg("attrs"), py::arg("kernel_id"), py::arg("counts") = py::none());
  m.def("kernel_preference", &kernel_preference, py::arg("op"), py::arg("inputs"), py::arg("outputs"),
        py::arg("attrs"), py::arg("kernel_id"), py::arg("counts") = py::none());
  m.def("select_kernel", &select_kernel, py::arg("op"), py::arg("inputs"), py::arg("outputs"),
        py::arg("attrs"), py::arg("target"), py::arg("name") = "", py::arg("counts") = py::none());
}

}  // namespace aicf::bindings
