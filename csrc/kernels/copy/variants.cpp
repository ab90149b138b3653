// Data movement: copy and cast, transpose, broadcast.
#include "kernels/common/rows.h"
#include "kernels/copy/launch.h"
#include "op/registry.h"

namespace aicf {
namespace {

// (x) -> (y), one shape, any two dtypes.
Status check_copy(const OpDesc& op) {
  TensorDesc y = op.inputs[0];
  y.dtype = op.outputs[0].dtype;
  return expect_tensor(op, "y", op.outputs[0], y);
}

// (x) -> (y): y's dimension i is x's dimension perm[i].
Status check_transpose(const OpDesc& op) {
  const TensorDesc& x = op.inputs[0];
  const std::vector<int64_t>& perm = op.attrs.get(kPerm);
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
  const TensorDesc &x = op.inputs[0], &y = op.outputs[0];
  bool fits = x.rank <= y.rank;
  for (int i = 1; fits && i <= x.rank; ++i) {
    int64_t size = x.shape[x.rank - i];
    fits = size == 1 || size == y.shape[y.rank - i];
  }
  if (!fits) return refuse(op, "y: expected a shape that x ", x.str(), " broadcasts to, got ", y.str());
  return expect_dtype(op, "y", y, x.dtype);
}

constexpr Prepare copy_on_cpu = prepare_with<copy_move, move_cpu>;
constexpr Prepare transpose_on_cpu = prepare_with<transpose_move, move_cpu>;
constexpr Prepare broadcast_on_cpu = prepare_with<broadcast_move, move_cpu>;
constexpr Prepare copy_on_cuda = AICF_CUDA((prepare_with<copy_move, move_cuda>));
constexpr Prepare transpose_on_cuda = AICF_CUDA((prepare_with<transpose_move, move_cuda>));
constexpr Prepare broadcast_on_cuda = AICF_CUDA((prepare_with<broadcast_move, move_cuda>));

constexpr KernelVariant kVariants[] = {
    skippable_cuda_row("copy_cuda", "copy", kSmAny, copy_on_cuda, needs_element_alignment),
    cpu_row("copy_cpu", "copy", copy_on_cpu, needs_element_alignment),
    cuda_row("transpose_cuda", "transpose", kSmAny, transpose_on_cuda, needs_dense),
    cpu_row("transpose_cpu", "transpose", transpose_on_cpu),
    cuda_row("broadcast_cuda", "broadcast", kSmAny, broadcast_on_cuda, needs_dense),
    cpu_row("broadcast_cpu", "broadcast", broadcast_on_cpu),
};

}  // namespace

static const Family family([](KernelRegistry& registry) {
  registry.add(OpSchema{25,
                        "Copy",
                        "copy",
                        "x, cast to the element type of y",
                        {strided("x")},
                        {strided("y")},
                        {},
                        {},
                        "",
                        check_copy});
  registry.add(OpSchema{26,
                        "Transpose",
                        "transpose",
                        "dimension i of y is dimension perm[i] of x",
                        {{"x"}},
                        {{"y"}},
                        {required(kPerm)},
                        {},
                        "",
                        check_transpose});
  registry.add(OpSchema{27,
                        "Broadcast",
                        "broadcast",
                        "x repeated to the shape of y, as NumPy does",
                        {{"x"}},
                        {{"y"}},
                        {},
                        {},
                        "",
                        check_broadcast});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
