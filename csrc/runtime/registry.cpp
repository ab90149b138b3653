#include "runtime/registry.h"

#include <stdexcept>

namespace aicf {
namespace {

std::string attr_names(uint32_t bits) {
  std::string names;
  for (size_t i = 0; i < kAttrCount; ++i) {
    const AttrKey key = static_cast<AttrKey>(i);
    if (bits & attr_bit(key)) names += (names.empty() ? "" : ", ") + std::string(attr_name(key));
  }
  return names;
}

// "gemm(f32[4, 8], f32[8, 2]) -> (f32[4, 2])"
std::string signature(const OpDesc& op) {
  std::string text = std::string(op_name(op.kind)) + "(";
  for (size_t i = 0; i < op.inputs.size(); ++i) text += (i ? ", " : "") + op.inputs[i].str();
  text += ") -> (";
  for (size_t i = 0; i < op.outputs.size(); ++i) text += (i ? ", " : "") + op.outputs[i].str();
  return text + ")";
}

std::string kernels_of(const std::vector<KernelVariant>& variants, OpKind kind) {
  std::string names;
  for (const KernelVariant& v : variants)
    if (v.kind == kind) names += (names.empty() ? "" : ", ") + std::string(v.name);
  return std::string(op_name(kind)) + " has " + (names.empty() ? "no kernel" : names);
}

}  // namespace

KernelRegistry& KernelRegistry::get() {
  static KernelRegistry& registry = *[] {
    auto* filled = new KernelRegistry;  // lives as long as the process: plans hold pointers to its variants
    register_all(*filled);
    return filled;
  }();
  return registry;
}

void KernelRegistry::add(const OpSchema& schema) {
  if (!op_name(schema.kind))
    throw std::logic_error("schema for a number that is no OpKind: " +
                           std::to_string(static_cast<int>(schema.kind)));
  if (this->schema(schema.kind))
    throw std::logic_error("the schema of " + std::string(op_name(schema.kind)) + " is registered twice");
  schemas_.push_back(schema);
}

void KernelRegistry::add(const KernelVariant& variant) {
  if (find(variant.name))
    throw std::logic_error("kernel '" + std::string(variant.name) + "' is registered twice");
  if (!schema(variant.kind))
    throw std::logic_error("kernel '" + std::string(variant.name) +
                           "' is registered before the schema of its kind");
  variants_.push_back(variant);
}

std::string KernelRegistry::replace_cpu_launchers(KernelLauncher (*find)(const char* name)) {
  for (const KernelVariant& v : variants_)
    if (v.device == DeviceType::Cpu && !find(v.name)) return v.name;
  for (KernelVariant& v : variants_)
    if (v.device == DeviceType::Cpu) v.launch = find(v.name);
  return "";
}

const OpSchema* KernelRegistry::schema(OpKind kind) const {
  for (const OpSchema& s : schemas_)
    if (s.kind == kind) return &s;
  return nullptr;
}

const KernelVariant* KernelRegistry::find(const std::string& name) const {
  for (const KernelVariant& v : variants_)
    if (name == v.name) return &v;
  return nullptr;
}

Status KernelRegistry::check(const OpDesc& op) const {
  const OpSchema* s = schema(op.kind);
  if (!s)
    return Status::invalid("kind " + std::to_string(static_cast<int64_t>(op.kind)) +
                           " is no operation; the kinds are those of aicf_mlir.OpKind");
  const std::string name = op_name(op.kind);
  if (const uint32_t unknown = op.attrs.present() & ~s->attrs)
    return Status::invalid(name + " has no attribute " + attr_names(unknown) + "; " +
                           (s->attrs ? "it takes " + attr_names(s->attrs) : "it takes none"));
  if (const uint32_t missing = s->required & ~op.attrs.present())
    return Status::invalid(name + " needs the attribute " + attr_names(missing));
  return s->check(op);
}

Status KernelRegistry::accepts(const KernelVariant& variant, const OpDesc& op, const Target& target) const {
  if (variant.device != target.device)
    return Status::unsupported(std::string("runs on ") +
                               (variant.device == DeviceType::Cpu ? "cpu" : "cuda"));
  if (variant.min_sm > target.sm) return Status::unsupported("needs sm_" + std::to_string(variant.min_sm));
  return variant.supported(op);
}

Status KernelRegistry::select(const OpDesc& op, const Target& target, const std::string& name,
                              const KernelVariant** out) const {
  AICF_TRY(check(op));
  if (!name.empty()) {
    const KernelVariant* named = find(name);
    if (!named)
      return Status::unsupported("no kernel is called '" + name + "'; " + kernels_of(variants_, op.kind));
    if (named->kind != op.kind)
      return Status::unsupported("kernel '" + name + "' runs " + op_name(named->kind) + "; " +
                                 kernels_of(variants_, op.kind));
    const Status reason = accepts(*named, op, target);
    if (!reason.is_ok())
      return Status::unsupported("kernel '" + name + "' cannot run " + signature(op) + " on " + target.str() +
                                 ": " + reason.message());
    *out = named;
    return Status::ok();
  }
  std::string reasons;
  for (const KernelVariant& v : variants_) {
    if (v.kind != op.kind) continue;
    const Status reason = accepts(v, op, target);
    if (reason.is_ok()) {
      *out = &v;
      return Status::ok();
    }
    reasons += "\n  " + std::string(v.name) + ": " + reason.message();
  }
  return Status::unsupported("no kernel runs " + signature(op) + " on " + target.str() +
                             (reasons.empty() ? "; none is registered" : "; candidates:" + reasons));
}

}  // namespace aicf
