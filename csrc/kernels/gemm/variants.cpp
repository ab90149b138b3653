// The matrix product, alone (gemm), with an epilogue (gemm_epilogue), and with one that is generated
// (gemm_map): what they accept, and the kernels that run the first two.
#include <climits>

#include "kernels/common/rows.h"
#include "kernels/gemm/cublaslt_gemm.h"
#include "kernels/gemm/device/short_shapes.h"
#include "kernels/gemm/launch.h"
#include "kernels/gemm/problem.h"
#include "kernels/gemm/tiles.h"
#include "kernels/generated/attrs.h"
#include "op/registry.h"

namespace aicf {
namespace {

// (a, b): rank 2 or more, equal leading dimensions, op(a)[m, k] op(b)[k, n] -> [m, n].
Status product_type(const OpDesc& op, TensorDesc* result) {
  const TensorDesc &a = op.in("a"), &b = op.in("b");
  AICF_TRY(expect_float(op, "a", a));
  AICF_TRY(expect_dtype(op, "b", b, a.dtype));
  if (op.attrs.get(kAllowTF32) && a.dtype != DType::F32)
    return refuse(op, "allow_tf32: expected operands of f32, got ", dtype_name(a.dtype));
  if (a.rank < 2) return refuse(op, "a: expected rank 2 or more, got ", a.str());
  AICF_TRY(expect_rank(op, "b", b, a.rank));
  for (int i = 0; i < a.rank - 2; ++i) {
    if (a.shape[i] != b.shape[i])
      return refuse(op, "expected equal leading dimensions, got a ", a.str(), " and b ", b.str());
  }
  const bool trans_a = op.attrs.get(kTransA), trans_b = op.attrs.get(kTransB);
  int64_t m = a.shape[a.rank - (trans_a ? 1 : 2)], k_a = a.shape[a.rank - (trans_a ? 2 : 1)];
  int64_t n = b.shape[b.rank - (trans_b ? 2 : 1)], k_b = b.shape[b.rank - (trans_b ? 1 : 2)];
  if (k_a != k_b) {
    return refuse(op, "expected equal inner dimensions, got ", k_a, " of a ", a.str(),
                  trans_a ? " transposed" : "", " and ", k_b, " of b ", b.str(),
                  trans_b ? " transposed" : "");
  }
  std::vector<int64_t> shape(a.shape, a.shape + a.rank);
  shape[a.rank - 2] = m;
  shape[a.rank - 1] = n;
  *result = expected_tensor(a.dtype, shape);
  return Status::ok();
}

// (a, b) -> (out).
Status check_product(const OpDesc& op) {
  TensorDesc out;
  AICF_TRY(product_type(op, &out));
  return expect_tensor(op, "out", op.out("out"), out);
}

// (a, b, [bias], [saved]) -> (out, [pre], [bias_grad]).
Status check_gemm_epilogue(const OpDesc& op) {
  const bool act = op.attrs.get(kAct) != Act::None, act_grad = op.attrs.get(kActGrad) != Act::None;
  const bool bias = op.has_in("bias");
  if (act_grad && (act || bias)) {
    return refuse(op, "act_grad: expected neither act nor bias beside it, got ", act ? "act" : "",
                  act && bias ? " and " : "", bias ? "bias" : "");
  }
  if (act_grad != op.has_in("saved"))
    return refuse(op, "saved: expected ", act_grad ? "the value that act_grad takes" : "act_grad beside it",
                  ", got none");
  AICF_TRY(check_product(op));
  const TensorDesc& out = op.out("out");
  if (bias)
    AICF_TRY(expect_tensor(op, "bias", op.in("bias"), expected_tensor(out.dtype, {out.shape[out.rank - 1]})));
  if (act_grad) AICF_TRY(expect_tensor(op, "saved", op.in("saved"), out));
  if (op.has_out("pre")) AICF_TRY(expect_tensor(op, "pre", op.out("pre"), out));
  if (!op.has_out("bias_grad")) return Status::ok();
  if (out.rank != 2) return refuse(op, "bias_grad: expected operands of rank 2, got out ", out.str());
  return expect_tensor(op, "bias_grad", op.out("bias_grad"), expected_tensor(out.dtype, {out.shape[0]}));
}

// (a, b, x..., table...) -> (y...): x and y of the shape of the product, tables of any; element types are the
// body's to say.
Status check_gemm_map(const OpDesc& op) {
  TensorDesc out;
  AICF_TRY(product_type(op, &out));
  const auto expect_shape = [&](const std::string& name, const TensorDesc& got) {
    return got.same_shape(out) ? Status::ok()
                               : refuse(op, name, ": expected the shape of ", out.str(), ", got ", got.str());
  };
  const Tensors given = op.ins("x"), results = op.outs("y");
  for (size_t i = 0; i < given.size(); ++i) AICF_TRY(expect_shape(op.in_name(2 + i), given[i]));
  if (results.empty()) return refuse(op, "y: expected one tensor or more, got none");
  for (size_t i = 0; i < results.size(); ++i) AICF_TRY(expect_shape(op.out_name(i), results[i]));
  return Status::ok();
}

Status supports_blas(const OpDesc& op) {
  DType dtype = op.outputs[0].dtype;
  if (dtype != DType::F32 && dtype != DType::F64) return decline("needs f32 or f64, got ", dtype_name(dtype));
  GemmProblem p{};
  AICF_TRY(read_gemm_problem(op, &p));
  if (p.m > INT_MAX || p.n > INT_MAX || p.k > INT_MAX) {
    return decline("needs dimensions below 2^31, got m = ", p.m, ", n = ", p.n, ", k = ", p.k);
  }
  if (p.a.leading > INT_MAX || p.b.leading > INT_MAX || p.out.leading > INT_MAX) {
    return decline("needs rows less than 2^31 elements apart, got ", p.a.leading, " in a, ", p.b.leading,
                   " in b, ", p.out.leading, " in out");
  }
  return needs_element_alignment(op);
}

// What every kernel takes that reads a GemmProblem.
Status supports_product(const OpDesc& op) {
  GemmProblem p{};
  AICF_TRY(read_gemm_problem(op, &p));
  return needs_element_alignment(op);
}

template <DType dtype>
Status supports_product_of(const OpDesc& op) {
  AICF_TRY(needs_dtype(op, dtype));
  return supports_product(op);
}

template <int rows, int columns>
Status supports_tiled(const OpDesc& op) {
  AICF_TRY(supports_product_of<DType::F32>(op));
  const GemmProblem p = gemm_problem(op);
  const TileSize best = register_tile(p.m, p.n, p.batch);
  if (best.rows == rows && best.columns == columns) return Status::ok();
  return decline(best.rows * best.columns < rows * columns ? "too few tiles to fill the chip"
                                                           : "more tiles than the chip needs",
                 ": those of ", best.rows, "x", best.columns, " take less time, got ", p.batch, "*", p.m, "*",
                 p.n);
}

Status supports_short_sums(const OpDesc& op) {
  AICF_TRY(supports_product_of<DType::F32>(op));
  const GemmProblem p = gemm_problem(op);
  if (p.k > gemm::ShortSums::BK)
    return decline("needs sums of at most ", gemm::ShortSums::BK, " terms, got ", p.k);
  return Status::ok();
}

Status prefers_short_sums(const OpDesc& op) {
  const GemmProblem p = gemm_problem(op);
  if (has_short_sums(p.m, p.n, p.k, p.batch)) return Status::ok();
  return decline("too few tiles to fill the chip, got ", p.batch, "*", p.m, "*", p.n);
}

Status needs_tf32(const OpDesc& op) {
  AICF_TRY(needs_dtype(op, DType::F32));
  return op.attrs.get(kAllowTF32) ? Status::ok() : decline("needs allow_tf32");
}

Status supports_product_of_tf32(const OpDesc& op) {
  AICF_TRY(needs_tf32(op));
  return supports_product(op);
}

template <DType dtype>
Status supports_cublaslt_of(const OpDesc& op) {
  AICF_TRY(needs_dtype(op, dtype));
  return supports_cublaslt(op);
}

Status supports_cublaslt_of_tf32(const OpDesc& op) {
  AICF_TRY(needs_tf32(op));
  return supports_cublaslt(op);
}

// By name it runs all that it supports.
constexpr KernelVariant only_where(SupportFunction preferred, KernelVariant variant) {
  variant.preferred = preferred;
  return variant;
}

// In order of preference.
constexpr Prepare by_cublaslt = AICF_CUDA(prepare_cublaslt<false>);
constexpr Prepare by_cublaslt_in_tf32 = AICF_CUDA(prepare_cublaslt<true>);
template <DType dtype>
constexpr Prepare tensor_cores =
    AICF_CUDA((prepare_chosen<choices_of_tensor_cores, tensor_core_gemm, gemm_tc_cuda<dtype>>));
constexpr Prepare cpu_blas = prepare_chosen<choices_of_cpu_blas, cpu_blas_gemm, gemm_cpu_blas>;
constexpr Prepare short_sums = AICF_CUDA((prepare_with<gemm_problem, gemm_short_sums_cuda>));
constexpr Prepare tiled_128x64 = AICF_CUDA((prepare_with<gemm_problem, gemm_tiled_128x64_cuda>));
constexpr Prepare tiled_64x32 = AICF_CUDA((prepare_with<gemm_problem, gemm_tiled_64x32_cuda>));
constexpr Prepare tiled_64x64 = AICF_CUDA((prepare_with<gemm_problem, gemm_tiled_64x64_cuda>));
constexpr Prepare tiled_32x32 = AICF_CUDA((prepare_with<gemm_problem, gemm_tiled_32x32_cuda>));
constexpr Prepare tiled_16x16 = AICF_CUDA((prepare_with<gemm_problem, gemm_tiled_16x16_cuda>));
constexpr Prepare naive = AICF_CUDA((prepare_with<gemm_problem, gemm_naive_cuda>));

#define AICF_CUBLASLT_ROW(op, type, dtype)                                                        \
  choosing(library_row(Library::CublasLt, op type "_cublaslt", op, kSmAny, by_cublaslt,           \
                       supports_cublaslt_of<DType::dtype>, prefers_cublaslt, cublaslt_workspace), \
           AICF_CUDA(choices_of_cublaslt<false>))
#define AICF_GEMM_ROWS(op)                                                                                  \
  AICF_CUBLASLT_ROW(op, "_f16", F16), AICF_CUBLASLT_ROW(op, "_bf16", BF16),                                 \
      choosing(library_row(Library::CublasLt, op "_tf32_cublaslt", op, kSmAsyncCopies, by_cublaslt_in_tf32, \
                           supports_cublaslt_of_tf32, prefers_cublaslt, cublaslt_workspace),                \
               AICF_CUDA(choices_of_cublaslt<true>)),                                                       \
      AICF_CUBLASLT_ROW(op, "_f32", F32),                                                                   \
      choosing(cuda_row(op "_f16_tc", op, kSmAsyncCopies, tensor_cores<DType::F16>,                         \
                        supports_product_of<DType::F16>, tensor_core_workspace),                            \
               choices_of_tensor_cores),                                                                    \
      choosing(cuda_row(op "_bf16_tc", op, kSmAsyncCopies, tensor_cores<DType::BF16>,                       \
                        supports_product_of<DType::BF16>, tensor_core_workspace),                           \
               choices_of_tensor_cores),                                                                    \
      choosing(cuda_row(op "_tf32_tc", op, kSmAsyncCopies, tensor_cores<DType::F32>,                        \
                        supports_product_of_tf32, tensor_core_workspace),                                   \
               choices_of_tensor_cores),                                                                    \
      only_where(prefers_short_sums,                                                                        \
                 cuda_row(op "_f32_short_sums", op, kSmAsyncCopies, short_sums, supports_short_sums)),      \
      cuda_row(op "_f32_tiled_128x64", op, kSmAsyncCopies, tiled_128x64, supports_tiled<128, 64>),          \
      cuda_row(op "_f32_tiled_64x64", op, kSmAsyncCopies, tiled_64x64, supports_tiled<64, 64>),             \
      cuda_row(op "_f32_tiled_64x32", op, kSmAsyncCopies, tiled_64x32, supports_tiled<64, 32>),             \
      cuda_row(op "_f32_tiled_16x16", op, kSmAsyncCopies, tiled_16x16, supports_tiled<16, 16>),             \
      cuda_row(op "_f32_tiled_32x32", op, kSmAsyncCopies, tiled_32x32, supports_product_of<DType::F32>),    \
      cuda_row(op "_f32_naive", op, kSmAny, naive, supports_product_of<DType::F32>),                        \
      cuda_row(op "_f64_naive", op, kSmAny, naive, supports_product_of<DType::F64>),                        \
      choosing(cpu_row(op "_cpu_blas", op, cpu_blas, supports_blas, gemm_cpu_blas_workspace),               \
               choices_of_cpu_blas),                                                                        \
      cpu_row(op "_cpu_plain", op, prepare_with<gemm_problem, gemm_cpu_plain>, supports_product,            \
              gemm_cpu_plain_workspace)

// The library has no epilogue in f64.
constexpr KernelVariant kVariants[] = {AICF_CUBLASLT_ROW("gemm", "_f64", F64), AICF_GEMM_ROWS("gemm"),
                                       AICF_GEMM_ROWS("gemm_epilogue")};

constexpr const char* kNumerics =
    "a and b may be rounded to TF32 with allow_tf32; sums in f32 (f64 for f64), in an order that the kernel "
    "fixes; each result rounded once";

}  // namespace

Status choices_of_tensor_cores(const OpDesc& op, std::vector<std::string>* out) {
  const GemmProblem p = gemm_problem(op);
  const Division division = tensor_core_division(p.m, p.n, p.k, p.batch);
  const std::string first = TiledGemm{p, division}.choice();
  out->push_back(first);
  for (const TileSize& tile : kTensorCoreTiles) {
    if (tile.rows == 16 && tiles_fill({64, 64}, p.m, p.n, p.batch)) continue;
    const std::string choice = TiledGemm{p, divided(tile, p.k, 1)}.choice();
    if (choice != first) out->push_back(choice);
  }
  return Status::ok();
}

TiledGemm tensor_core_gemm(const OpDesc& op, const std::string& choice) {
  const GemmProblem p = gemm_problem(op);
  const size_t columns = choice.find('x') + 1, split = choice.find('/');
  const TileSize tile{std::stoi(choice), std::stoi(choice.substr(columns))};
  return {p, divided(tile, p.k, split == std::string::npos ? 1 : std::stoll(choice.substr(split + 1)))};
}

size_t tensor_core_workspace(const OpDesc& op) {
  const GemmProblem p = gemm_problem(op);
  const int64_t parts = tensor_core_division(p.m, p.n, p.k, p.batch).split_k;
  const int64_t rows = op.schema->outputs.size() > 2 && op.has_out("bias_grad") ? p.m : 0;
  return parts > 1 ? static_cast<size_t>(parts * (p.m * p.n + rows)) * sizeof(float) : 0;
}

static const Family family([](KernelRegistry& registry) {
  registry.add(OpSchema{2,
                        "Gemm",
                        "gemm",
                        "op(a) op(b), of rank 2, or more with equal leading dimensions",
                        {strided("a"), strided("b")},
                        {strided("out")},
                        {optional(kTransA), optional(kTransB), optional(kAllowTF32)},
                        {},
                        kNumerics,
                        check_product});
  registry.add(OpSchema{
      3,
      "GemmEpilogue",
      "gemm_epilogue",
      "z = op(a) op(b) [+ bias]; pre = z; out = act(z), or the gradient of act_grad from z and "
      "saved, z of 16 bits rounded first; bias_grad = sums of op(a) along k",
      {strided("a"), strided("b"), maybe("bias"), strided(maybe("saved"))},
      {strided("out"), strided(maybe("pre")), maybe("bias_grad")},
      {optional(kTransA), optional(kTransB), optional(kAllowTF32), optional(kAct), optional(kActGrad)},
      {{"out", "saved"}},  // each element is read by the thread that then writes it
      kNumerics,
      check_gemm_epilogue});
  registry.add(OpSchema{
      39,
      "GemmMap",
      "gemm_map",
      "y: the body at each point of z = op(a) op(b), of z and the x there; it indexes tables",
      {strided("a"), strided("b"), strided(many("x")), strided(many("table"))},
      {strided(any("y"))},
      {optional(kTransA), optional(kTransB), optional(kAllowTF32), required(kBody), optional(kAhead)},
      {},  // which pairs may share memory, its code knows
      "a and b may be rounded to TF32 with allow_tf32; z and the body in f32 (f64 for f64), in an "
      "order that the "
      "kernel fixes; each result rounded once",
      check_gemm_map,
      nullptr,
      true});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
