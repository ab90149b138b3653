#include <algorithm>

#include "kernels/optim/step.h"

namespace aicf {
namespace {

using OperandNames = std::vector<const char*>;

// The address that tensor `index` reads: a scalar's, or that of its own element of a vector.
const void* scalar_address(const TensorDesc& scalar, int64_t index) {
  const size_t element = scalar.rank == 0 ? 0 : static_cast<size_t>(index);
  return scalar.ptr<const char>() + element * dtype_size(scalar.dtype);
}

// `states` begin with p and g; each but g has a result of its name. `scalars` have one tensor a group.
Updates read_updates(const OpDesc& op, const OperandNames& states, const OperandNames& scalars) {
  const std::vector<int64_t>&groups = op.attrs.get(kGroups), &indices = op.attrs.get(kIndices);
  const std::vector<int64_t>& copied = op.attrs.get(kCopied);  // ascending
  Updates updates;
  updates.dtype = op.in("p").dtype;
  for (size_t i = 0; i < groups.size(); ++i) {
    TensorUpdate update;
    update.numel = op.ins("p")[i].numel();
    if (update.numel == 0) continue;
    for (size_t s = 0; s < states.size(); ++s) {
      update.old_values[s] = op.ins(states[s])[i].data;
      if (s != 1) update.new_values[s] = op.outs(states[s])[i].data;
    }
    for (size_t k = 0; k < scalars.size(); ++k)
      update.scalars[k] = scalar_address(op.ins(scalars[k])[static_cast<size_t>(groups[i])],
                                         indices.empty() ? 0 : indices[i]);
    update.gradient = op.ins(states[1])[i].dtype;
    const auto copy = std::lower_bound(copied.begin(), copied.end(), static_cast<int64_t>(i));
    if (copy != copied.end() && *copy == static_cast<int64_t>(i)) {
      const TensorDesc& target = op.outs("copy")[static_cast<size_t>(copy - copied.begin())];
      update.copy = target.data;
      update.copied = target.dtype;
    }
    updates.mixed |= update.gradient != updates.dtype || update.copy;
    updates.tensors.push_back(update);
  }
  updates.maximize = op.attrs.get(kMaximize);
  return updates;
}

}  // namespace

Updates sgd_updates(const OpDesc& op) {
  const bool momentum = op.has_in("buf");
  Updates updates =
      momentum ? read_updates(op, {"p", "g", "buf"}, {"lr", "weight_decay", "momentum", "dampening", "step"})
               : read_updates(op, {"p", "g"}, {"lr", "weight_decay"});
  updates.has_state = momentum;
  updates.nesterov = op.attrs.get(kNesterov);
  return updates;
}

Updates adam_updates(const OpDesc& op) {
  OperandNames states = {"p", "g", "m", "v"};
  if (op.has_in("vmax")) states.push_back("vmax");
  Updates updates =
      read_updates(op, states, {"lr", "beta1", "beta2", "eps", "weight_decay", "bc1_inv", "bc2_inv"});
  updates.has_state = op.has_in("vmax");
  updates.decoupled = op.attrs.get(kDecoupled);
  return updates;
}

}  // namespace aicf
