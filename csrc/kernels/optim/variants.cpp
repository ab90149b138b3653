// The optimizer steps over all parameters at once, and the step counter that advances on the device.
#include "kernels/common/rows.h"
#include "kernels/optim/launch.h"
#include "kernels/optim/step.h"
#include "op/registry.h"

namespace aicf {
namespace {

const TensorDesc kScalar = expected_tensor(DType::F64, {});

// A vector with an element for each parameter of a group.
Status check_vector(const OpDesc& op, const std::string& name, const TensorDesc& vector, DType dtype) {
  if (vector.rank == 1 && vector.dtype == dtype && vector.shape[0] >= 1) return Status::ok();
  return refuse(op, name, ": expected ", dtype_name(dtype), "[n] with n of 1 or more, got ", vector.str());
}

// step: f32[n], n >= 1; the scalars: f64[]; the corrections: f64[n]. With beta1 come all the others.
Status check_advance(const OpDesc& op) {
  const TensorDesc& step = op.in("step");
  AICF_TRY(check_vector(op, "step", step, DType::F32));
  AICF_TRY(expect_tensor(op, "step'", op.out("step"), step));
  const bool corrections = op.has_in("beta1");
  for (const char* name : {"beta1", "beta2", "bc1_pin", "bc2_pin"}) {
    if (op.has_in(name) != corrections)
      return refuse(op, name, ": expected beta1, beta2, bc1_pin and bc2_pin, or none of them");
    if (corrections) AICF_TRY(expect_tensor(op, name, op.in(name), kScalar));
  }
  const TensorDesc inverse = expected_tensor(DType::F64, {step.shape[0]});
  for (const char* name : {"bc1_inv", "bc2_inv"}) {
    if (op.has_out(name) != corrections)
      return refuse(op, name, ": expected ", corrections ? "one tensor beside beta1" : "beta1 beside it",
                    ", got none");
    if (corrections) AICF_TRY(expect_tensor(op, name, op.out(name), inverse));
  }
  return Status::ok();
}

// groups: for each tensor the position of its scalars; no scalar is left out.
Status check_groups(const OpDesc& op) {
  const std::vector<int64_t>& groups = op.attrs.get(kGroups);
  const size_t tensors = op.ins("p").size(), count = op.ins("lr").size();
  if (groups.empty() || groups.size() != tensors)
    return refuse(op, "groups: expected the group of each of ", tensors, " tensors, got ", groups.size());
  std::vector<bool> used(count, false);
  for (const int64_t group : groups) {
    if (group < 0 || group >= static_cast<int64_t>(count))
      return refuse(op, "groups: expected indices from 0 to ", static_cast<int64_t>(count) - 1,
                    ", one for each lr, got ", group);
    used[static_cast<size_t>(group)] = true;
  }
  for (size_t i = 0; i < count; ++i)
    if (!used[i]) return refuse(op, "groups: expected every group to have a tensor, got none in group ", i);
  return Status::ok();
}

// indices: one per tensor, each an element of the vector `name` of the tensor's group.
Status check_indices(const OpDesc& op, const char* name) {
  const std::vector<int64_t>&indices = op.attrs.get(kIndices), &groups = op.attrs.get(kGroups);
  if (indices.size() != groups.size())
    return refuse(op, "indices: expected an element of ", name, " for each of ", groups.size(),
                  " tensors, got ", indices.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    const TensorDesc& vector = op.ins(name)[static_cast<size_t>(groups[i])];
    if (indices[i] < 0 || indices[i] >= vector.shape[0])
      return refuse(op, "indices: expected an element of ", name, " ", vector.str(), " of group ", groups[i],
                    ", got ", indices[i], " for tensor ", i);
  }
  return Status::ok();
}

// As many tensors of each name as there are of `like`.
Status check_count(const OpDesc& op, const char* name, const char* like) {
  const size_t expected = op.ins(like).size(), got = op.ins(name).size();
  if (got == expected) return Status::ok();
  return refuse(op, name, ": expected ", expected, ", as many as of ", like, ", got ", got);
}

// A gradient has the type of its parameter. One of f16 or bf16 may stand beside a parameter of f32: the
// launch widens it, which is exact.
Status expect_gradient(const OpDesc& op, const char* name, const TensorDesc& g, const TensorDesc& p) {
  if (p.dtype != DType::F32) return expect_tensor(op, name, g, p);
  if (g.dtype != DType::F32 && g.dtype != DType::F16 && g.dtype != DType::BF16)
    return refuse(op, name, ": expected element type f32, f16 or bf16 beside a parameter of f32, got ",
                  g.str());
  TensorDesc want = p;
  want.dtype = g.dtype;
  return expect_tensor(op, name, g, want);
}

// Every tensor of p, of the states and of the results has the type of its parameter, and g as above; all
// parameters have one float dtype.
Status check_tensors(const OpDesc& op, const std::vector<const char*>& states) {
  const Tensors p = op.ins("p");
  for (const char* name : states) AICF_TRY(check_count(op, name, "p"));
  for (size_t i = 0; i < p.size(); ++i) {
    const std::string at = "[" + std::to_string(i) + "]";
    AICF_TRY(expect_float(op, ("p" + at).c_str(), p[i]));
    AICF_TRY(expect_dtype(op, ("p" + at).c_str(), p[i], p[0].dtype));
    for (const char* name : states) {
      const auto expect = std::string(name) == "g" ? expect_gradient : expect_tensor;
      AICF_TRY(expect(op, (name + at).c_str(), op.ins(name)[i], p[i]));
    }
    for (const char* name : states)
      if (std::string(name) != "g")
        AICF_TRY(expect_tensor(op, (name + ("'" + at)).c_str(), op.outs(name)[i], p[i]));
  }
  return Status::ok();
}

// copied: which parameters, ascending and of f32, are written as f16 or bf16 too, each to its `copy`.
Status check_copies(const OpDesc& op) {
  const std::vector<int64_t>& copied = op.attrs.get(kCopied);
  const Tensors p = op.ins("p"), copies = op.outs("copy");
  if (copied.size() != copies.size())
    return refuse(op, "copied: expected a parameter for each of ", copies.size(), " copies, got ",
                  copied.size());
  for (size_t i = 0; i < copied.size(); ++i) {
    const int64_t least = i ? copied[i - 1] + 1 : 0;
    if (copied[i] < least || copied[i] >= static_cast<int64_t>(p.size()))
      return refuse(op, "copied: expected ascending numbers from 0 to ", static_cast<int64_t>(p.size()) - 1,
                    ", got ", copied[i], " at ", i);
    const TensorDesc &from = p[static_cast<size_t>(copied[i])], &to = copies[i];
    const std::string name = "copy[" + std::to_string(i) + "]";
    if (from.dtype != DType::F32 || (to.dtype != DType::F16 && to.dtype != DType::BF16))
      return refuse(op, name, ": expected f16 or bf16 of a parameter of f32, got ", to.str(), " of ",
                    from.str());
    TensorDesc want = from;
    want.dtype = to.dtype;
    AICF_TRY(expect_tensor(op, name.c_str(), to, want));
  }
  return Status::ok();
}

// One scalar a group.
Status check_scalars(const OpDesc& op, const std::vector<const char*>& names) {
  for (const char* name : names) {
    AICF_TRY(check_count(op, name, "lr"));
    for (size_t group = 0; group < op.ins(name).size(); ++group)
      AICF_TRY(expect_tensor(op, (name + ("[" + std::to_string(group) + "]")).c_str(), op.ins(name)[group],
                             kScalar));
  }
  return Status::ok();
}

// A vector a group.
Status check_vectors(const OpDesc& op, const char* name, DType dtype) {
  AICF_TRY(check_count(op, name, "lr"));
  for (size_t group = 0; group < op.ins(name).size(); ++group)
    AICF_TRY(check_vector(op, name + ("[" + std::to_string(group) + "]"), op.ins(name)[group], dtype));
  return Status::ok();
}

Status check_sgd_step(const OpDesc& op) {
  AICF_TRY(check_groups(op));
  AICF_TRY(check_copies(op));
  AICF_TRY(check_scalars(op, {"lr", "weight_decay"}));
  if (op.has_in("buf")) {
    AICF_TRY(check_tensors(op, {"p", "g", "buf"}));
    AICF_TRY(check_scalars(op, {"momentum", "dampening"}));
    AICF_TRY(check_vectors(op, "step", DType::F32));
    return check_indices(op, "step");
  }
  AICF_TRY(check_tensors(op, {"p", "g"}));
  for (const char* name : {"momentum", "dampening", "step"})
    if (op.has_in(name)) return refuse(op, name, ": expected buf beside it, got none");
  if (op.attrs.get(kNesterov)) return refuse(op, "nesterov: expected buf beside it, got none");
  if (op.attrs.has(kIndices)) return refuse(op, "indices: expected buf beside it, got none");
  return Status::ok();
}

Status check_adam_step(const OpDesc& op) {
  AICF_TRY(check_groups(op));
  AICF_TRY(check_copies(op));
  AICF_TRY(check_scalars(op, {"lr", "beta1", "beta2", "eps", "weight_decay"}));
  std::vector<const char*> states = {"p", "g", "m", "v"};
  if (op.has_in("vmax")) states.push_back("vmax");
  AICF_TRY(check_tensors(op, states));
  AICF_TRY(check_vectors(op, "bc1_inv", DType::F64));
  AICF_TRY(check_count(op, "bc2_inv", "lr"));
  for (size_t group = 0; group < op.ins("lr").size(); ++group)
    AICF_TRY(expect_tensor(op, ("bc2_inv[" + std::to_string(group) + "]").c_str(), op.ins("bc2_inv")[group],
                           op.ins("bc1_inv")[group]));
  return check_indices(op, "bc1_inv");
}

constexpr Prepare sgd_cuda = AICF_CUDA((prepare_with<sgd_updates, sgd_step_cuda>));
constexpr Prepare adam_cuda = AICF_CUDA((prepare_with<adam_updates, adam_step_cuda>));

constexpr KernelVariant kVariants[] = {
    skippable_cuda_row("advance_cuda", "advance", kSmAny, AICF_CUDA(prepare_op<advance_cuda>), needs_dense),
    cpu_row("advance_cpu", "advance", prepare_op<advance_cpu>),
    AICF_CUDA_FLOAT_ROWS_BY(skippable_cuda_row, "sgd_step", "sgd_step", sgd_cuda, nullptr),
    cpu_row("sgd_step_cpu", "sgd_step", prepare_with<sgd_updates, sgd_step_cpu>),
    AICF_CUDA_FLOAT_ROWS_BY(skippable_cuda_row, "adam_step", "adam_step", adam_cuda, nullptr),
    cpu_row("adam_step_cpu", "adam_step", prepare_with<adam_updates, adam_step_cpu>),
};

constexpr const char* kNumerics =
    "scalars combined in f64 and rounded once, the update in f32 (f64 for f64); torch's single-tensor "
    "formulas; a gradient of f16 or bf16 beside a parameter of f32 is widened, which is exact; copy is the "
    "new value of the parameters that copied names, rounded";

}  // namespace

static const Family family([](KernelRegistry& registry) {
  registry.add(
      OpSchema{28,
               "Advance",
               "advance",
               "step + 1 for each parameter of a group, and the inverse bias corrections of that step",
               {{"step"}, maybe("beta1"), maybe("beta2"), maybe("bc1_pin"), maybe("bc2_pin")},
               {{"step"}, maybe("bc1_inv"), maybe("bc2_inv")},
               {},
               {{"step", "step"}},
               "corrections in f64",
               check_advance});
  registry.add(OpSchema{
      29,
      "SgdStep",
      "sgd_step",
      "SGD over many tensors: groups says which scalars each has, indices which element of "
      "step",
      {many("p"), many("g"), many("buf"), many("lr"), many("weight_decay"), many("momentum"),
       many("dampening"), many("step")},
      {many("p"), many("buf"), any("copy")},
      {required(kGroups), optional(kIndices), optional(kNesterov), optional(kMaximize), optional(kCopied)},
      {{"p", "p"}, {"buf", "buf"}},
      kNumerics,
      check_sgd_step});
  registry.add(OpSchema{
      30,
      "AdamStep",
      "adam_step",
      "Adam over many tensors: groups says which scalars each has, indices which element of the "
      "corrections",
      {many("p"), many("g"), many("m"), many("v"), many("vmax"), many("lr"), many("beta1"), many("beta2"),
       many("eps"), many("weight_decay"), many("bc1_inv"), many("bc2_inv")},
      {many("p"), many("m"), many("v"), many("vmax"), any("copy")},
      {required(kGroups), required(kIndices), optional(kDecoupled), optional(kMaximize), optional(kCopied)},
      {{"p", "p"}, {"m", "m"}, {"v", "v"}, {"vmax", "vmax"}},
      kNumerics,
      check_adam_step});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
