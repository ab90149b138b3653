// The optimizer steps over all parameters at once, and the step counter that advances on the device.
#include "kernels/common/rows.h"
#include "kernels/optim/launch.h"
#include "kernels/optim/step.h"
#include "runtime/registry.h"

namespace aicf {
namespace {

const TensorDesc kScalar = expected_tensor(DType::F64, {});

// A vector with an element for each parameter of a group.
Status check_vector(const OpDesc& op, const std::string& name, const TensorDesc& vector, DType dtype) {
  if (vector.rank == 1 && vector.dtype == dtype && vector.shape[0] >= 1) return Status::ok();
  return refuse(op, name, ": expected ", dtype_name(dtype), "[n] with n of 1 or more, got ", vector.str());
}

// step: f32[n], n >= 1; the scalars: f64[]; the corrections: f64[n].
Status check_advance(const OpDesc& op) {
  bool corrections = op.inputs.size() != 1 || op.outputs.size() != 1;
  AICF_TRY(corrections ? expect_arity(op, 5, 3) : expect_arity(op, 1, 1));
  const TensorDesc& step = op.inputs[0];
  AICF_TRY(check_vector(op, "step", step, DType::F32));
  AICF_TRY(expect_tensor(op, "step'", op.outputs[0], step));
  if (!corrections) return Status::ok();
  const char* inputs[] = {"step", "beta1", "beta2", "bc1_pin", "bc2_pin"};
  for (int i = 1; i < 5; ++i) AICF_TRY(expect_tensor(op, inputs[i], op.inputs[i], kScalar));
  const TensorDesc inverse = expected_tensor(DType::F64, {step.shape[0]});
  AICF_TRY(expect_tensor(op, "bc1_inv", op.outputs[1], inverse));
  return expect_tensor(op, "bc2_inv", op.outputs[2], inverse);
}

// groups: one index per tensor, no index left out (each group has its scalars among the operands).
Status check_groups(const OpDesc& op) {
  const std::vector<int64_t>& groups = op.attrs.ints(AttrKey::groups);
  if (groups.empty()) return refuse(op, "groups: expected the group of each tensor, got an empty list");
  for (int64_t group : groups) {
    if (group < 0 || group >= static_cast<int64_t>(groups.size())) {
      return refuse(op, "groups: expected indices from 0 to ", groups.size() - 1, " for ", groups.size(),
                    " tensors, got ", group);
    }
  }
  std::vector<bool> used(static_cast<size_t>(group_count(op)), false);
  for (int64_t group : groups) used[static_cast<size_t>(group)] = true;
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) return refuse(op, "groups: expected every group to have a tensor, got none in group ", i);
  }
  return Status::ok();
}

// indices: one per tensor, each an element of operand `offset` among those of the tensor's group: `name`.
template <class Layout>
Status check_indices(const OpDesc& op, const Layout& layout, const char* name, int64_t offset) {
  const std::vector<int64_t>& indices = op.attrs.ints(AttrKey::indices);
  const std::vector<int64_t>& groups = op.attrs.ints(AttrKey::groups);
  if (indices.size() != groups.size()) {
    return refuse(op, "indices: expected an element of ", name, " for each of ", groups.size(),
                  " tensors, got ", indices.size());
  }
  for (size_t i = 0; i < indices.size(); ++i) {
    const TensorDesc& vector = op.inputs[static_cast<size_t>(layout.first_scalar(groups[i]) + offset)];
    if (indices[i] < 0 || indices[i] >= vector.shape[0]) {
      return refuse(op, "indices: expected an element of ", name, " ", vector.str(), " of group ", groups[i],
                    ", got ", indices[i], " for tensor ", i);
    }
  }
  return Status::ok();
}

// Tensor i of each state and each result has the type of parameter i; all parameters have one float dtype.
Status check_states(const OpDesc& op, int64_t tensors, const std::vector<const char*>& inputs,
                    const std::vector<const char*>& outputs) {
  for (int64_t i = 0; i < tensors; ++i) {
    const TensorDesc& p = op.inputs[i];
    std::string at = "[" + std::to_string(i) + "]";
    AICF_TRY(expect_float(op, ("p" + at).c_str(), p));
    AICF_TRY(expect_dtype(op, ("p" + at).c_str(), p, op.inputs[0].dtype));
    for (size_t s = 1; s < inputs.size(); ++s)
      AICF_TRY(expect_tensor(op, (inputs[s] + at).c_str(), op.inputs[s * tensors + i], p));
    for (size_t s = 0; s < outputs.size(); ++s)
      AICF_TRY(expect_tensor(op, (outputs[s] + at).c_str(), op.outputs[s * tensors + i], p));
  }
  return Status::ok();
}

Status check_scalar(const OpDesc& op, const char* name, int64_t group, int64_t index) {
  std::string full = std::string(name) + " of group " + std::to_string(group);
  return expect_tensor(op, full.c_str(), op.inputs[index], kScalar);
}

Status check_sgd_step(const OpDesc& op) {
  AICF_TRY(check_groups(op));
  SgdLayout layout(op);
  AICF_TRY(expect_arity(op, layout.inputs(), layout.outputs()));
  std::vector<const char*> inputs = {"p", "g"}, outputs = {"p'"};
  if (layout.momentum) {
    inputs.push_back("buf");
    outputs.push_back("buf'");
  } else if (op.attrs.flag(AttrKey::nesterov)) {
    return refuse(op, "nesterov: expected momentum beside it, got none");
  } else if (op.attrs.has(AttrKey::indices)) {
    return refuse(op, "indices: expected momentum beside it, got none");
  }
  AICF_TRY(check_states(op, layout.tensors, inputs, outputs));
  const char* names[] = {"lr", "weight_decay", "momentum", "dampening"};
  for (int64_t group = 0; group < layout.groups; ++group) {
    int64_t first = layout.first_scalar(group);
    for (int i = 0; i < (layout.momentum ? 4 : 2); ++i)
      AICF_TRY(check_scalar(op, names[i], group, first + i));
    if (!layout.momentum) continue;
    AICF_TRY(check_vector(op, "step of group " + std::to_string(group), op.inputs[first + 4], DType::F32));
  }
  return layout.momentum ? check_indices(op, layout, "step", 4) : Status::ok();
}

Status check_adam_step(const OpDesc& op) {
  AICF_TRY(check_groups(op));
  AdamLayout layout(op);
  AICF_TRY(expect_arity(op, layout.inputs(), layout.outputs()));
  std::vector<const char*> inputs = {"p", "g", "m", "v"}, outputs = {"p'", "m'", "v'"};
  if (layout.amsgrad) {
    inputs.push_back("vmax");
    outputs.push_back("vmax'");
  }
  AICF_TRY(check_states(op, layout.tensors, inputs, outputs));
  const char* names[] = {"lr", "beta1", "beta2", "eps", "weight_decay"};
  for (int64_t group = 0; group < layout.groups; ++group) {
    const int64_t first = layout.first_scalar(group);
    for (int i = 0; i < 5; ++i) AICF_TRY(check_scalar(op, names[i], group, first + i));
    const std::string of_group = " of group " + std::to_string(group);
    AICF_TRY(check_vector(op, "bc1_inv" + of_group, op.inputs[first + 5], DType::F64));
    AICF_TRY(expect_tensor(op, ("bc2_inv" + of_group).c_str(), op.inputs[first + 6], op.inputs[first + 5]));
  }
  return check_indices(op, layout, "bc1_inv", 5);
}

// step' with step.
bool alias_step(const OpDesc&, int out, int in) { return out == 0 && in == 0; }

// p'[i] with p[i], and each new state with its old one: outputs are in the order of the inputs without g.
bool alias_states(const OpDesc& op, int out, int in) {
  int64_t tensors = static_cast<int64_t>(op.attrs.ints(AttrKey::groups).size());
  int64_t state = out / tensors;
  return in == (state == 0 ? 0 : state + 1) * tensors + out % tensors;
}

constexpr KernelVariant kVariants[] = {
    skippable_cuda_row("advance_cuda", OpKind::Advance, kSmAny, AICF_CUDA_LAUNCH(advance_cuda), needs_dense),
    cpu_row("advance_cpu", OpKind::Advance, advance_cpu),
    AICF_CUDA_FLOAT_ROWS_BY(skippable_cuda_row, "sgd_step", OpKind::SgdStep, sgd_step_cuda, nullptr),
    cpu_row("sgd_step_cpu", OpKind::SgdStep, sgd_step_cpu),
    AICF_CUDA_FLOAT_ROWS_BY(skippable_cuda_row, "adam_step", OpKind::AdamStep, adam_step_cuda, nullptr),
    cpu_row("adam_step_cpu", OpKind::AdamStep, adam_step_cpu),
};

constexpr uint32_t kGroups = attr_bit(AttrKey::groups);
constexpr uint32_t kIndices = attr_bit(AttrKey::indices);
constexpr uint32_t kMaximize = attr_bit(AttrKey::maximize);

constexpr OpSchema kSchemas[] = {
    {OpKind::Advance, 0, 0, check_advance, alias_step},
    {OpKind::SgdStep,
     kGroups | kIndices | kMaximize | attr_bit(AttrKey::momentum) | attr_bit(AttrKey::nesterov), kGroups,
     check_sgd_step, alias_states},
    {OpKind::AdamStep,
     kGroups | kIndices | kMaximize | attr_bit(AttrKey::amsgrad) | attr_bit(AttrKey::decoupled),
     kGroups | kIndices, check_adam_step, alias_states},
};

}  // namespace

void register_optim(KernelRegistry& registry) {
  for (const OpSchema& schema : kSchemas) registry.add(schema);
  for (const KernelVariant& variant : kVariants) registry.add(variant);
}

}  // namespace aicf
