// gemm and gemm_epilogue in f32 and f64: the epilogue over each block of the product.
#include "kernels/gemm/cpu_products.h"
#include "kernels/gemm/launch.h"

namespace aicf {
namespace {

using namespace cpu;

// The product goes straight to the result, except where the epilogue still has to read `saved`, which may be
// the same memory.
bool needs_panel(const GemmProblem& p) { return p.act_grad != Act::None; }

// A dense matrix [m, n] for each product.
Matrices<void*> dense(const GemmProblem& p, void* data) {
  return {data, p.n, p.inner_batch * p.m * p.n, p.m * p.n};
}

template <class T>
Status run(const GemmProblem& p, bool packed, void* panel) {
  store_bias_grad<T>(p);
  const Matrices<void*> z = panel ? dense(p, panel) : p.out;
  const auto beside = [&](const Product& product) {
    Beside read;
    if (p.saved.data) read.add(p.saved.of<const T>(product), p.saved.leading, sizeof(T));
    return read;
  };
  return multiply<T>(p, z, packed, beside, [&](int64_t, const Product& product, const Block<T>& block) {
    if (!p.plain()) finish_block(p, product, block);
  });
}

}  // namespace

size_t gemm_cpu_blas_workspace(const OpDesc& op) {
  const GemmProblem p = gemm_problem(op);
  return needs_panel(p) ? static_cast<size_t>(p.batch * p.m * p.n) * dtype_size(p.dtype) : 0;
}

Status choices_of_cpu_blas(const OpDesc& op, std::vector<std::string>* out) {
  const GemmProblem p = gemm_problem(op);
  if (can_pack(p))
    *out = packs(p) ? std::vector<std::string>{kPacked, kInBlocks}
                    : std::vector<std::string>{kInBlocks, kPacked};
  else
    *out = {kInBlocks};
  return Status::ok();
}

CpuBlasGemm cpu_blas_gemm(const OpDesc& op, const std::string& choice) {
  return {gemm_problem(op), choice == kPacked};
}

Status gemm_cpu_blas(const CpuBlasGemm& gemm, const LaunchContext& ctx) {
  AICF_TRY(needs_blas());
  const GemmProblem& p = gemm.problem;
  void* panel = needs_panel(p) ? ctx.workspace : nullptr;
  return p.dtype == DType::F32 ? run<float>(p, gemm.packed, panel) : run<double>(p, false, panel);
}

}  // namespace aicf
