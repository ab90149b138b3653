// The matrix product, alone (gemm) and with an epilogue (gemm_epilogue): what they accept and the kernels
// that run them.
#include <climits>

#include "kernels/common/rows.h"
#include "kernels/gemm/launch.h"
#include "kernels/gemm/problem.h"
#include "runtime/registry.h"

namespace aicf {
namespace {

// (a, b) -> (out): rank 2 or more, equal leading dimensions, op(a)[m, k] op(b)[k, n] -> out[m, n].
Status check_product(const OpDesc& op) {
  const TensorDesc &a = op.inputs[0], &b = op.inputs[1];
  AICF_TRY(expect_float(op, "a", a));
  AICF_TRY(expect_dtype(op, "b", b, a.dtype));
  if (a.rank < 2) return refuse(op, "a: expected rank 2 or more, got ", a.str());
  AICF_TRY(expect_rank(op, "b", b, a.rank));
  for (int i = 0; i < a.rank - 2; ++i) {
    if (a.shape[i] != b.shape[i])
      return refuse(op, "expected equal leading dimensions, got a ", a.str(), " and b ", b.str());
  }
  bool trans_a = op.attrs.flag(AttrKey::trans_a), trans_b = op.attrs.flag(AttrKey::trans_b);
  int64_t m = a.shape[a.rank - (trans_a ? 1 : 2)], k_a = a.shape[a.rank - (trans_a ? 2 : 1)];
  int64_t n = b.shape[b.rank - (trans_b ? 2 : 1)], k_b = b.shape[b.rank - (trans_b ? 1 : 2)];
  if (k_a != k_b) {
    return refuse(op, "expected equal inner dimensions, got ", k_a, " of a ", a.str(),
                  trans_a ? " transposed" : "", " and ", k_b, " of b ", b.str(),
                  trans_b ? " transposed" : "");
  }
  TensorDesc out = a;
  out.shape[a.rank - 2] = m;
  out.shape[a.rank - 1] = n;
  return expect_tensor(op, "out", op.outputs[0], out);
}

Status check_gemm(const OpDesc& op) {
  AICF_TRY(expect_arity(op, 2, 1));
  return check_product(op);
}

// (a, b, [bias], [saved]) -> (out, [pre], [bias_grad]).
Status check_gemm_epilogue(const OpDesc& op) {
  bool bias = op.attrs.flag(AttrKey::bias), pre = op.attrs.flag(AttrKey::pre),
       bias_grad = op.attrs.flag(AttrKey::bias_grad);
  bool act = op.attrs.act(AttrKey::act) != Act::None, act_grad = op.attrs.act(AttrKey::act_grad) != Act::None;
  if (act_grad && (act || bias)) {
    return refuse(op, "act_grad: expected neither act nor bias beside it, got ", act ? "act" : "",
                  act && bias ? " and " : "", bias ? "bias" : "");
  }
  AICF_TRY(expect_arity(op, 2 + size_t{bias} + size_t{act_grad}, 1 + size_t{pre} + size_t{bias_grad}));
  AICF_TRY(check_product(op));
  const TensorDesc& out = op.outputs[0];
  if (bias)
    AICF_TRY(expect_tensor(op, "bias", op.inputs[2], expected_tensor(out.dtype, {out.shape[out.rank - 1]})));
  if (act_grad) AICF_TRY(expect_tensor(op, "saved", op.inputs[2], out));
  if (pre) AICF_TRY(expect_tensor(op, "pre", op.outputs[1], out));
  if (!bias_grad) return Status::ok();
  if (out.rank != 2) return refuse(op, "bias_grad: expected operands of rank 2, got out ", out.str());
  return expect_tensor(op, "bias_grad", op.outputs[1 + size_t{pre}],
                       expected_tensor(out.dtype, {out.shape[0]}));
}

// Each element of `saved` is read by the thread that then writes the same element of `out`.
bool alias_saved(const OpDesc& op, int out, int in) {
  return out == 0 && in == 2 && op.attrs.act(AttrKey::act_grad) != Act::None;
}

Status supports_blas(const OpDesc& op) {
  DType dtype = op.outputs[0].dtype;
  if (dtype != DType::F32 && dtype != DType::F64) return decline("needs f32 or f64, got ", dtype_name(dtype));
  GemmProblem p = gemm_problem(op);
  if (p.m > INT_MAX || p.n > INT_MAX || p.k > INT_MAX) {
    return decline("needs dimensions below 2^31, got m = ", p.m, ", n = ", p.n, ", k = ", p.k);
  }
  return needs_dense(op);
}

// Below this many elements, 64x64 tiles are too few to fill the chip.
constexpr int64_t kSmallestLargeResult = 256 * 1024;

Status supports_tiled_64x64(const OpDesc& op) {
  AICF_TRY(supports_dtype<DType::F32>(op));
  GemmProblem p = gemm_problem(op);
  if (p.m * p.n < kSmallestLargeResult) {
    return decline("too few tiles to fill the chip: needs m*n >= ", kSmallestLargeResult, ", got ", p.m, "*",
                   p.n);
  }
  return Status::ok();
}

// In order of preference. Tensor cores and asynchronous copies to shared memory need sm_80.
#define AICF_GEMM_ROWS(name, kind)                                                                      \
  cuda_row(name "_f16_tc", kind, 80, AICF_CUDA_LAUNCH(gemm_tc_cuda), supports_dtype<DType::F16>),       \
      cuda_row(name "_bf16_tc", kind, 80, AICF_CUDA_LAUNCH(gemm_tc_cuda), supports_dtype<DType::BF16>), \
      cuda_row(name "_f32_tiled_64x64", kind, 80, AICF_CUDA_LAUNCH(gemm_tiled_64x64_cuda),              \
               supports_tiled_64x64),                                                                   \
      cuda_row(name "_f32_tiled_32x32", kind, 80, AICF_CUDA_LAUNCH(gemm_tiled_32x32_cuda),              \
               supports_dtype<DType::F32>),                                                             \
      cuda_row(name "_f32_naive", kind, kSmAny, AICF_CUDA_LAUNCH(gemm_naive_cuda),                      \
               supports_dtype<DType::F32>),                                                             \
      cuda_row(name "_f64_naive", kind, kSmAny, AICF_CUDA_LAUNCH(gemm_naive_cuda),                      \
               supports_dtype<DType::F64>),                                                             \
      cpu_row(name "_cpu_blas", kind, gemm_cpu_blas, supports_blas, gemm_cpu_blas_workspace),           \
      cpu_row(name "_cpu_plain", kind, gemm_cpu_plain)

constexpr KernelVariant kVariants[] = {
    AICF_GEMM_ROWS("gemm", OpKind::Gemm),
    AICF_GEMM_ROWS("gemm_epilogue", OpKind::GemmEpilogue),
};

constexpr uint32_t kTransposes = attr_bit(AttrKey::trans_a) | attr_bit(AttrKey::trans_b);
constexpr uint32_t kEpilogue = attr_bit(AttrKey::bias) | attr_bit(AttrKey::act) |
                               attr_bit(AttrKey::act_grad) | attr_bit(AttrKey::pre) |
                               attr_bit(AttrKey::bias_grad);

}  // namespace

void register_gemm(KernelRegistry& registry) {
  registry.add(OpSchema{OpKind::Gemm, kTransposes, 0, check_gemm, never_alias});
  registry.add(OpSchema{OpKind::GemmEpilogue, kTransposes | kEpilogue, 0, check_gemm_epilogue, alias_saved});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
}

}  // namespace aicf
