// Data movement: copy and cast, transpose, broadcast.
#include "kernels/common/rows.h"
#include "kernels/copy/launch.h"
#include "runtime/registry.h"

namespace aicf {
namespace {

// (x) -> (y), one shape, any two dtypes.
Status check_copy(const OpDesc& op) {
  AICF_TRY(expect_arity(op, 1, 1));
  TensorDesc y = op.inputs[0];
  y.dtype = op.outputs[0].dtype;
  return expect_tensor(op, "y", op.outputs[0], y);
}

// (x) -> (y): y's dimension i is x's dimension perm[i].
Status check_transpose(const OpDesc& op) {
  AICF_TRY(expect_arity(op, 1, 1));
  const TensorDesc& x = op.inputs[0];
  const std::vector<int64_t>& perm = op.attrs.ints(AttrKey::perm);
  if (perm.size() != static_cast<size_t>(x.rank)) {
    return refuse(op, "perm: expected ", x.rank, " dimensions for x ", x.str(), ", got ", perm.size());
  }
  TensorDesc y = x;
  uint32_t seen = 0;
  for (int i = 0; i < x.rank; ++i) {
    if (perm[i] < 0 || perm[i] >= x.rank || (seen >> perm[i] & 1)) {
      return refuse(op, "perm: expected each dimension from 0 to ", x.rank - 1, " once, got ", perm[i],
                    " at position ", i);
    }
    seen |= 1u << perm[i];
    y.shape[i] = x.shape[perm[i]];
  }
  return expect_tensor(op, "y", op.outputs[0], y);
}

// (x) -> (y): x's shape, aligned at the last dimension, broadcasts to y's.
Status check_broadcast(const OpDesc& op) {
  AICF_TRY(expect_arity(op, 1, 1));
  const TensorDesc &x = op.inputs[0], &y = op.outputs[0];
  bool fits = x.rank <= y.rank;
  for (int i = 1; fits && i <= x.rank; ++i) {
    int64_t size = x.shape[x.rank - i];
    fits = size == 1 || size == y.shape[y.rank - i];
  }
  if (!fits) return refuse(op, "y: expected a shape that x ", x.str(), " broadcasts to, got ", y.str());
  return expect_dtype(op, "y", y, x.dtype);
}

constexpr KernelVariant kVariants[] = {
    skippable_cuda_row("copy_cuda", OpKind::Copy, kSmAny, AICF_CUDA_LAUNCH(copy_cuda), needs_dense),
    cpu_row("copy_cpu", OpKind::Copy, copy_cpu),
    cuda_row("transpose_cuda", OpKind::Transpose, kSmAny, AICF_CUDA_LAUNCH(transpose_cuda), needs_dense),
    cpu_row("transpose_cpu", OpKind::Transpose, transpose_cpu),
    cuda_row("broadcast_cuda", OpKind::Broadcast, kSmAny, AICF_CUDA_LAUNCH(broadcast_cuda), needs_dense),
    cpu_row("broadcast_cpu", OpKind::Broadcast, broadcast_cpu),
};

constexpr OpSchema kSchemas[] = {
    {OpKind::Copy, 0, 0, check_copy, never_alias},
    {OpKind::Transpose, attr_bit(AttrKey::perm), attr_bit(AttrKey::perm), check_transpose, never_alias},
    {OpKind::Broadcast, 0, 0, check_broadcast, never_alias},
};

}  // namespace

void register_copy(KernelRegistry& registry) {
  for (const OpSchema& schema : kSchemas) registry.add(schema);
  for (const KernelVariant& variant : kVariants) registry.add(variant);
}

}  // namespace aicf
