#include "op/registry.h"

#include <algorithm>
#include <stdexcept>

namespace aicf {
namespace {

// "gemm(f32[4, 8], f32[8, 2]) -> (f32[4, 2])"
std::string signature(const OpDesc& op) {
  std::string text = std::string(op.schema->name) + "(";
  for (size_t i = 0; i < op.inputs.size(); ++i) text += (i ? ", " : "") + op.inputs[i].str();
  text += ") -> (";
  for (size_t i = 0; i < op.outputs.size(); ++i) text += (i ? ", " : "") + op.outputs[i].str();
  return text + ")";
}

std::string kernels_of(const std::vector<KernelVariant>& variants, const OpSchema& schema) {
  std::string names;
  for (const KernelVariant& v : variants)
    if (v.schema == &schema) names += (names.empty() ? "" : ", ") + std::string(v.name);
  return std::string(schema.name) + " has " + (names.empty() ? "no kernel" : names);
}

}  // namespace

std::vector<Family::Register>& Family::all() {
  static std::vector<Register> families;  // made by the first family, whichever that is
  return families;
}

KernelRegistry& KernelRegistry::get() {
  static KernelRegistry& registry = *[] {
    auto* filled = new KernelRegistry;  // lives as long as the process: plans hold pointers to its variants
    for (const Family::Register add : Family::all()) add(*filled);
    filled->sort();
    return filled;
  }();
  return registry;
}

void KernelRegistry::sort() {
  std::sort(schemas_.begin(), schemas_.end(),
            [](const OpSchema& a, const OpSchema& b) { return a.number < b.number; });
  for (KernelVariant& v : variants_) v.schema = schema(v.op);
  std::stable_sort(variants_.begin(), variants_.end(), [](const KernelVariant& a, const KernelVariant& b) {
    return a.schema->number < b.schema->number;
  });
}

void KernelRegistry::add(OpSchema schema) {
  for (const OpSchema& other : schemas_)
    if (other.number == schema.number || std::string(other.name) == schema.name)
      throw std::logic_error("the schema of " + std::string(schema.name) +
                             " is registered twice, or has the number " + std::to_string(schema.number) +
                             " of " + other.name);
  for (const OperandRow& row : schema.outputs) {
    bool named = row.count != Count::Many;
    for (const OperandRow& input : schema.inputs) named |= std::string(input.name) == row.name;
    if (!named)
      throw std::logic_error("the results '" + std::string(row.name) + "' of " + schema.name +
                             " have no operands to be counted by");
  }
  for (const OperandRow& row : schema.inputs)
    if (row.count == Count::Any)
      throw std::logic_error("the operands '" + std::string(row.name) + "' of " + schema.name +
                             " are many(); any() is of results");
  schemas_.push_back(std::move(schema));
}

void KernelRegistry::add(KernelVariant variant) {
  if (find(variant.name))
    throw std::logic_error("kernel '" + std::string(variant.name) + "' is registered twice");
  variant.schema = schema(variant.op);
  if (!variant.schema)
    throw std::logic_error("kernel '" + std::string(variant.name) +
                           "' is registered before the schema of its op");
  variants_.push_back(variant);
}

std::string KernelRegistry::replace_cpu_kernels(const KernelVariant* (*find)(const char* name)) {
  for (const KernelVariant& v : variants_)
    if (v.device == DeviceType::Cpu && !find(v.name)) return v.name;
  for (KernelVariant& v : variants_) {
    if (v.device != DeviceType::Cpu) continue;
    v.prepare = find(v.name)->prepare;
    v.choices = find(v.name)->choices;
  }
  return "";
}

const OpSchema* KernelRegistry::schema(const std::string& name) const {
  for (const OpSchema& s : schemas_)
    if (name == s.name) return &s;
  return nullptr;
}

const OpSchema* KernelRegistry::schema(int64_t number) const {
  for (const OpSchema& s : schemas_)
    if (s.number == number) return &s;
  return nullptr;
}

const KernelVariant* KernelRegistry::find(const std::string& name) const {
  for (const KernelVariant& v : variants_)
    if (name == v.name) return &v;
  return nullptr;
}

Status KernelRegistry::accepts(const KernelVariant& variant, const OpDesc& op, const Target& target) const {
  if (variant.device != target.device)
    return Status::unsupported(std::string("runs on ") +
                               (variant.device == DeviceType::Cpu ? "cpu" : "cuda"));
  if (variant.min_sm > target.sm) return Status::unsupported("needs sm_" + std::to_string(variant.min_sm));
  if (variant.max_sm && variant.max_sm < target.sm)
    return Status::unsupported("needs sm_" + std::to_string(variant.max_sm) + " or older");
  AICF_TRY(variant.supported(op));
  for (const LibraryRow& row : kLibraries)
    if (variant.library == row.library && !target.libraries.has(row.library))
      return Status::unsupported(std::string("needs ") + row.title + ": a target with +" + row.name);
  return Status::ok();
}

Status KernelRegistry::select(const OpDesc& op, const Target& target, const std::string& name,
                              const KernelVariant** out) const {
  if (op.schema->generated)
    return Status::unsupported(
        std::string(op.schema->name) +
        " has no prebuilt kernel: its kernels are generated from its body, and run in a "
        "plan");
  if (!name.empty()) {
    const KernelVariant* named = find(KernelName(name).id);
    if (!named)
      return Status::unsupported("no kernel is called '" + name + "'; " + kernels_of(variants_, *op.schema));
    if (named->schema != op.schema)
      return Status::unsupported("kernel '" + name + "' runs " + named->op + "; " +
                                 kernels_of(variants_, *op.schema));
    const Status reason = accepts(*named, op, target);
    if (!reason.is_ok())
      return Status::unsupported("kernel '" + name + "' cannot run " + signature(op) + " on " + target.str() +
                                 ": " + reason.message());
    *out = named;
    return Status::ok();
  }
  std::string reasons;
  *out = nullptr;
  for (const KernelVariant& v : variants_) {
    if (v.schema != op.schema) continue;
    const Status reason = accepts(v, op, target);
    if (reason.is_ok()) {
      const bool preferred = !v.preferred || v.preferred(op).is_ok();
      if (preferred || !*out) *out = &v;
      if (preferred) return Status::ok();
      continue;
    }
    reasons += "\n  " + std::string(v.name) + ": " + reason.message();
  }
  if (*out) return Status::ok();
  return Status::unsupported("no kernel runs " + signature(op) + " on " + target.str() +
                             (reasons.empty() ? "; none is registered" : "; candidates:" + reasons));
}

KernelName::KernelName(const std::string& text) : id(text.substr(0, text.find('['))) {
  if (id.size() == text.size()) return;
  choice = text.substr(id.size() + 1);
  if (choice.size() > 1 && choice.back() == ']')
    choice.pop_back();
  else
    id = text;  // no kernel has such a name
}

Status prepare_kernel(const KernelVariant& variant, const OpDesc& op, const std::string& name,
                      LaunchPointer* out) {
  const std::string id = variant.name, choice = KernelName(name).choice;
  if (!variant.prepare) return Status::unsupported("kernel '" + id + "' is not in this build");
  AICF_TRY(variant.prepare(variant, op, choice, out));
  if ((*out)->id() == (choice.empty() ? id : id + "[" + choice + "]")) return Status::ok();
  if (choice.empty())
    return Status::unsupported("kernel '" + id + "' made a launch of '" + (*out)->id() +
                               "' ready instead of its own");
  return Status::unsupported("kernel '" + id + "' cannot choose [" + choice +
                             "] for these operands; it runs as " + (*out)->name());
}

}  // namespace aicf
