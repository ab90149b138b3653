#include "runtime/prepare.h"

#include "device/check_memory.h"
#include "op/registry.h"
#include "op/validate.h"

namespace aicf {
namespace {

Status place(const SlotSpec& slot, const ArenaMap& arenas, TensorDesc* out) {
  const Arena* arena = nullptr;
  AICF_TRY(find_arena(slot.arena, arenas, &arena));
  AICF_TRY(make_tensor(slot.dtype, slot.shape, out));
  std::string what = "the slot " + out->str();
  if (slot.strides) {
    AICF_TRY(set_strides(*slot.strides, out));
    AICF_TRY(check_span(*out));
    what += " with strides " + out->strides_str();
  }
  AICF_TRY(arena->check_range(what, slot.offset, static_cast<int64_t>(out->span_bytes())));
  out->data = arena->data() + slot.offset;
  int index = 0;
  AICF_TRY(parse_device(arena->device_name(), &out->device, &index));
  out->device_index = static_cast<int16_t>(index);
  out->alignment = address_alignment(out->data);
  return Status::ok();
}

Status place_all(const LaunchSpec& spec, const ArenaMap& arenas, OpDesc* op) {
  op->schema = spec.schema;
  op->attrs = spec.attrs;
  op->input_counts = spec.input_counts;
  op->output_counts = spec.output_counts;
  op->inputs.resize(spec.inputs.size());
  op->outputs.resize(spec.outputs.size());
  for (size_t i = 0; i < operand_count(*op); ++i) {
    const bool input = i < op->inputs.size();
    const size_t index = input ? i : i - op->inputs.size();
    const Status placed = place(input ? spec.inputs[index] : spec.outputs[index], arenas,
                                input ? &op->inputs[index] : &op->outputs[index]);
    if (!placed.is_ok()) return placed.at(operand_name(*op, i));
  }
  return Status::ok();
}

// What a launch needs to know of its kernel, prebuilt or generated.
struct Kernel {
  DeviceType device;
  size_t workspace;  // bytes
  bool skippable;    // whether it looks at ctx.predicate where its device does not
};

Status place_workspace(const LaunchSpec& spec, const ArenaMap& arenas, size_t needed, const OpDesc& op,
                       LaunchContext* context) {
  const int64_t given = spec.workspace ? spec.workspace->nbytes : 0;
  if (given < 0 || static_cast<size_t>(given) < needed)
    return Status::invalid("kernel '" + spec.kernel_id + "' needs a workspace of " + std::to_string(needed) +
                           " bytes, the plan gives " + std::to_string(given));
  if (!spec.workspace) return Status::ok();
  const Arena* arena = nullptr;
  AICF_TRY(find_arena(spec.workspace->arena, arenas, &arena));
  AICF_TRY(arena->check_range("the workspace", spec.workspace->offset, given));
  if (spec.workspace->offset % kPlannedAlignment != 0)
    return Status::invalid("the workspace at offset " + std::to_string(spec.workspace->offset) +
                           " must start at a multiple of " + std::to_string(kPlannedAlignment));
  context->workspace = arena->data() + spec.workspace->offset;
  context->workspace_bytes = static_cast<size_t>(given);
  for (size_t i = 0; i < operand_count(op); ++i) {
    const TensorDesc& t = operand(op, i);
    if (overlaps(t.data, t.span_bytes(), context->workspace, context->workspace_bytes))
      return Status::invalid("the workspace overlaps " + operand_name(op, i));
  }
  return Status::ok();
}

// The status that skips the launch, and the host's copy of the one that it computes.
Status place_statuses(const LaunchSpec& spec, const ArenaMap& arenas, const Kernel& kernel,
                      LaunchContext* context) {
  int64_t *status = nullptr, *visible = nullptr;
  if (spec.predicate) {
    AICF_TRY(place_status(*spec.predicate, arenas, &status, &visible));
    if (kernel.device != DeviceType::Cpu && !kernel.skippable)
      return Status::unsupported(
          "kernel '" + spec.kernel_id +
          "' does not look at a status; leave `predicate` away, or name a kernel of an "
          "update or a copy");
    context->predicate = status;
  }
  if (kernel.device == DeviceType::Cpu) return Status::ok();
  for (const SlotSpec& output : spec.outputs) {
    const Arena* arena = nullptr;
    AICF_TRY(find_arena(output.arena, arenas, &arena));
    if (!arena->visible()) continue;
    AICF_TRY(place_status(output, arenas, &status, &visible));
    context->visible_status = visible;
  }
  return Status::ok();
}

Status place_branch(const LaunchSpec& spec, const Device& device, Branched* out) {
  if (spec.branch < 0 || spec.branch >= static_cast<int64_t>(kMostBranches))
    return Status::invalid("a branch is a number from 0 to " + std::to_string(kMostBranches - 1) + ", got " +
                           std::to_string(spec.branch));
  if (spec.branch && device.type() == DeviceType::Cpu)
    return Status::unsupported("the CPU runs launches one after another; leave `branch` away");
  *out = {static_cast<size_t>(spec.branch), spec.after};
  return Status::ok();
}

// A kernel of the registry, on operands that its schema accepts.
Status prepare_prebuilt(const LaunchSpec& spec, const OpDesc& op, const Target& target, Kernel* kernel,
                        LaunchPointer* out) {
  if (spec.code)
    return Status::invalid(std::string(op.schema->name) + " has prebuilt kernels; leave `code` away");
  AICF_TRY(check_aliasing(op));
  const KernelVariant* variant = nullptr;
  AICF_TRY(KernelRegistry::get().select(op, target, spec.kernel_id, &variant));
  *kernel = {variant->device, variant->query_workspace ? variant->query_workspace(op) : 0,
             variant->skippable};
  return prepare_kernel(*variant, op, spec.kernel_id, out);
}

// Generated code: it was made for these very operands, which its id says.
Status prepare_generated(const LaunchSpec& spec, const OpDesc& op, const Target& target, Kernel* kernel,
                         LaunchPointer* out) {
  if (!spec.code)
    return Status::unsupported("no code for " + spec.kernel_id + "; a kernel of " + op.schema->name +
                               " is generated from its body, and a launch brings its code");
  const KernelCode& code = *spec.code;
  if (code.id() != spec.kernel_id)
    return Status::invalid("the launch names kernel " + spec.kernel_id + ", its code is that of " +
                           code.id());
  if (code.device() != target.device || code.sm() > target.sm)
    return Status::unsupported("the code of " + code.id() + " is for " +
                               Target{code.device(), code.sm()}.str() + ", the device is " + target.str());
  AICF_TRY(check_aliasing(op, [&](size_t y, size_t x) { return code.in_place(y, x); }));
  *kernel = {code.device(), code.workspace(), true};
  std::vector<void*> addresses;
  for (size_t i = 0; i < operand_count(op); ++i) addresses.push_back(operand(op, i).data);
  return code.prepare(addresses, out);
}

}  // namespace

Status find_arena(const std::string& name, const ArenaMap& arenas, const Arena** out) {
  const auto found = arenas.find(name);
  if (found == arenas.end()) {
    std::string known;
    for (const auto& entry : arenas) known += (known.empty() ? "" : ", ") + entry.first;
    return Status::invalid("no arena is called '" + name + "'; there are " +
                           (known.empty() ? "none" : known));
  }
  *out = found->second.get();
  return Status::ok();
}

Status place_status(const SlotSpec& slot, const ArenaMap& arenas, int64_t** device, int64_t** visible) {
  TensorDesc status;
  AICF_TRY(place(slot, arenas, &status));
  if (status.dtype != DType::I64 || status.rank != 1 || status.shape[0] != kStatusNumbers ||
      !status.contiguous())
    return Status::invalid("a status is i64[" + std::to_string(kStatusNumbers) + "], contiguous, got " +
                           status.str() + " with strides " + status.strides_str());
  const Arena* arena = nullptr;
  AICF_TRY(find_arena(slot.arena, arenas, &arena));
  if (!arena->visible())
    return Status::invalid("the arena '" + slot.arena + "' of a status must be visible to the host");
  *device = status.ptr<int64_t>();
  *visible = reinterpret_cast<int64_t*>(arena->visible() + slot.offset);
  return Status::ok();
}

std::string LaunchSpec::str(size_t position) const {
  std::string text = "launch " + (symbol.empty() ? std::to_string(position) : "@" + symbol) + " (";
  text += schema ? schema->name : "?";
  text += ", kernel " + kernel_id;
  return text + (origin.empty() ? "" : "; " + origin) + ")";
}

Status prepare(const LaunchSpec& spec, size_t position, Device& device, const ArenaMap& arenas,
               PreparedLaunch* out) {
  OpDesc op;
  AICF_TRY(place_all(spec, arenas, &op));
  if (spec.input_counts.empty()) AICF_TRY(count_operands(&op));
  AICF_TRY(check_use(op));
  AICF_TRY(check_memory(op, device));
  if (spec.kernel_id.empty())
    return Status::invalid("no kernel id; write one, or run the pass select-kernels");
  const auto prepare_op = spec.schema->generated ? prepare_generated : prepare_prebuilt;
  Kernel kernel{};
  AICF_TRY(prepare_op(spec, op, device.target(), &kernel, &out->launch));
  AICF_TRY(place_statuses(spec, arenas, kernel, &out->context));
  AICF_TRY(place_branch(spec, device, &out->order));
  out->first_step_only = spec.first_step_only;
  out->place = spec.str(position);
  return place_workspace(spec, arenas, kernel.workspace, op, &out->context);
}

}  // namespace aicf
