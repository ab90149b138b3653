#include "bindings.h"
#include "runtime/registry.h"

namespace aicf::bindings {
namespace {

// An enum.IntEnum, so that a kind prints by name, counts as an int and pickles.
py::object make_op_kind() {
  py::dict members;
#define X(name, number, text) members[#name] = number;
  AICF_OP_KINDS(X)
#undef X
  return py::module_::import("enum").attr("IntEnum")("OpKind", members, py::arg("module") = "aicf_mlir._C");
}

py::dict op_names() {
  py::dict names;
#define X(name, number, text) names[py::int_(number)] = text;
  AICF_OP_KINDS(X)
#undef X
  return names;
}

py::list kernel_variants() {
  py::list rows;
  for (const KernelVariant& variant : KernelRegistry::get().variants()) {
    py::dict row;
    row["name"] = variant.name;
    row["kind"] = static_cast<int>(variant.kind);
    row["op"] = op_name(variant.kind);
    row["device"] = variant.device == DeviceType::Cpu ? "cpu" : "cuda";
    row["min_sm"] = variant.min_sm;
    row["built"] = variant.launch != nullptr;
    rows.append(row);
  }
  return rows;
}

void check_op(py::handle kind, const py::list& inputs, const py::list& outputs, const py::dict& attrs) {
  raise_if(KernelRegistry::get().check(parse_op(kind, inputs, outputs, attrs)), Subject::Op);
}

std::vector<std::pair<int, int>> may_alias(py::handle kind, const py::list& inputs, const py::list& outputs,
                                           const py::dict& attrs) {
  const KernelRegistry& registry = KernelRegistry::get();
  const OpDesc op = parse_op(kind, inputs, outputs, attrs);
  raise_if(registry.check(op), Subject::Op);
  const OpSchema& schema = *registry.schema(op.kind);
  std::vector<std::pair<int, int>> pairs;
  if (!schema.may_alias) return pairs;
  for (int out = 0; out < static_cast<int>(op.outputs.size()); ++out)
    for (int in = 0; in < static_cast<int>(op.inputs.size()); ++in)
      if (schema.may_alias(op, out, in)) pairs.emplace_back(out, in);
  return pairs;
}

std::pair<std::string, size_t> select_kernel(py::handle kind, const py::list& inputs, const py::list& outputs,
                                             const py::dict& attrs, const std::string& target_name,
                                             const std::string& name) {
  OpDesc op = parse_op(kind, inputs, outputs, attrs);
  Target target;
  raise_if(Target::parse(target_name, &target), Subject::Op);
  for (std::vector<TensorDesc>* operands : {&op.inputs, &op.outputs})
    for (TensorDesc& t : *operands) t.device = target.device;
  const KernelVariant* variant = nullptr;
  raise_if(KernelRegistry::get().select(op, target, name, &variant), Subject::Op);
  return {variant->name, variant->query_workspace ? variant->query_workspace(op) : 0};
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
  m.def("op_names", &op_names);
  m.def("kernel_variants", &kernel_variants);
  m.def("check_op", &check_op, py::arg("kind"), py::arg("inputs"), py::arg("outputs"), py::arg("attrs"));
  m.def("may_alias", &may_alias, py::arg("kind"), py::arg("inputs"), py::arg("outputs"), py::arg("attrs"));
  m.def("select_kernel", &select_kernel, py::arg("kind"), py::arg("inputs"), py::arg("outputs"),
        py::arg("attrs"), py::arg("target"), py::arg("name") = "");
}

}  // namespace aicf::bindings
