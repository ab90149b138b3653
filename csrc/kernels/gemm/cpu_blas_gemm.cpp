// gemm and gemm_epilogue through BLAS: the product panel by panel, the epilogue over each panel while it is
// still in the cache.
#include "kernels/common/cpu_blas.h"
#include "kernels/gemm/cpu_epilogue.h"
#include "kernels/gemm/launch.h"

namespace aicf {
namespace {

using namespace cpu;

constexpr int64_t kPanelBytes = 1 << 20;  // of the result; half of a common second-level cache

// Rows of the result that are computed together: all of them where nothing follows the product.
int64_t panel_rows(const GemmProblem& p) {
  const int64_t row_bytes = std::max<int64_t>(p.n, 1) * static_cast<int64_t>(dtype_size(p.dtype));
  return std::min(p.m, std::max<int64_t>(1, kPanelBytes / row_bytes));
}

// The product goes straight to the result, except where the epilogue still has to read `saved`, which may be
// the same memory.
bool needs_panel(const GemmProblem& p) { return p.act_grad != Act::None; }

// Rows [first, first + rows) of op(a) op(b) of one product, to z.
template <class T>
void multiply(const GemmProblem& p, const Product& product, int64_t first, int64_t rows, T* z,
              int64_t pitch) {
  if (rows == 0 || p.n == 0) return;
  if (p.k == 0) {
    for (int64_t i = 0; i < rows; ++i) std::fill_n(z + i * pitch, p.n, T(0));
    return;
  }
  const T* a = p.a.of<const T>(product) + (p.trans_a ? first : first * p.a.leading);
  const T* b = p.b.of<const T>(product);
  blas_gemm(BlasProduct{rows, p.n, p.k, p.trans_a, p.trans_b, p.a.leading, p.b.leading, pitch}, a, b, z);
}

template <class T>
void run(const GemmProblem& p, T* panel) {
  const int64_t step = std::max<int64_t>(1, p.plain() ? p.m : panel_rows(p));
  const int64_t pitch = panel ? p.n : p.out.leading;
  for (int64_t batch = 0; batch < p.batch; ++batch) {
    const Product product = p.product(batch);
    for (int64_t first = 0; first < p.m; first += step) {
      const int64_t rows = std::min(step, p.m - first);
      T* z = panel ? panel : p.out.of<T>(product) + first * p.out.leading;
      multiply(p, product, first, rows, z, pitch);
      if (!p.plain()) finish_block(p, product, Block<T>{z, pitch, first, 0, rows, p.n});
    }
  }
  store_bias_grad<T>(p);
}

}  // namespace

size_t gemm_cpu_blas_workspace(const OpDesc& op) {
  const GemmProblem p = gemm_problem(op);
  return needs_panel(p) ? static_cast<size_t>(panel_rows(p) * p.n) * dtype_size(p.dtype) : 0;
}

Status gemm_cpu_blas(const GemmProblem& p, const LaunchContext& ctx) {
  if (!blas_loaded())
    return Status::state("no BLAS library is loaded; import aicf_mlir, which loads that of scipy-openblas32");
  void* panel = needs_panel(p) ? ctx.workspace : nullptr;
  if (p.dtype == DType::F32) {
    run(p, static_cast<float*>(panel));
  } else {
    run(p, static_cast<double*>(panel));
  }
  return Status::ok();
}

}  // namespace aicf
