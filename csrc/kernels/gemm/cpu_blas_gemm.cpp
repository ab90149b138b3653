// gemm and gemm_epilogue in f32 and f64. Large products of f32 are our own where the processor has what they
// need, all others are those of BLAS. The result comes in blocks that threads share, the epilogue over each
// block while it is still in the cache. The blocks follow from the shape alone, so the same shape gives the
// same bits.
#include "kernels/common/cpu_blas.h"
#include "kernels/common/cpu_parallel.h"
#include "kernels/gemm/cpu_epilogue.h"
#include "kernels/gemm/cpu_packed_gemm.h"
#include "kernels/gemm/launch.h"

namespace aicf {
namespace {

using namespace cpu;

constexpr int64_t kLeastLines = 64, kUsualLines = 128;

// The result divided along its longer dimension. BLAS packs all of the other operand again for each block:
// with 128 lines that takes a few percent, with 64 up to ten.
struct Blocks {
  bool rows;      // of rows, or of columns
  int64_t lines;  // of a block; the last one may have fewer
  int64_t count;

  explicit Blocks(const GemmProblem& p) : rows(p.m >= p.n) {
    const int64_t extent = rows ? p.m : p.n;
    const double line = double(rows ? p.n : p.m) * double(p.k);  // multiplications
    const double enough = line > 0 ? double(kGrainProducts) / line : double(extent);
    lines = std::clamp(extent / 4, kLeastLines, kUsualLines);
    if (enough > double(lines)) lines = enough < double(extent) ? static_cast<int64_t>(enough) + 1 : extent;
    lines = std::max<int64_t>((lines + kLeastLines - 1) / kLeastLines * kLeastLines, 1);
    count = (extent + lines - 1) / lines;
  }
};

// The product goes straight to the result, except where the epilogue still has to read `saved`, which may be
// the same memory.
bool needs_panel(const GemmProblem& p) { return p.act_grad != Act::None; }

// Below this BLAS has kernels that pack nothing; narrower operands would leave registers empty.
constexpr int64_t kLeastPacked = 1'000'000, kLeastExtent = 32;

bool packs(const GemmProblem& p) {
  return kPacks && std::min(p.m, p.n) >= kLeastExtent &&
         double(p.m) * double(p.n) * double(p.k) >= double(kLeastPacked);
}

// A block of op(a) op(b) of one product, to block.z.
template <class T>
void multiply(const GemmProblem& p, const Product& product, const Block<T>& block) {
  if (p.k == 0) {
    for (int64_t i = 0; i < block.rows; ++i) std::fill_n(block.z + i * block.pitch, block.columns, T(0));
    return;
  }
  const T* a = p.a.of<const T>(product) + (p.trans_a ? block.row : block.row * p.a.leading);
  const T* b = p.b.of<const T>(product) + (p.trans_b ? block.column * p.b.leading : block.column);
  blas_gemm(BlasProduct{block.rows, block.columns, p.k, p.trans_a, p.trans_b, p.a.leading, p.b.leading,
                        block.pitch},
            a, b, block.z);
}

// Products in blocks, each by one call of BLAS; `panel` has a matrix [m, n] for each product, or is null.
template <class T>
void run_blas(const GemmProblem& p, T* panel) {
  const Blocks blocks(p);
  const int64_t one = blocks.lines * std::min(p.m, p.n) * std::max<int64_t>(p.k, 1);  // multiplications
  in_parallel(
      p.batch * blocks.count, std::max<int64_t>(1, kGrainProducts / one), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t batch = i / blocks.count, first = i % blocks.count * blocks.lines;
          const Product product = p.product(batch);
          Block<T> block{
              nullptr, panel ? p.n : p.out.leading, blocks.rows ? first : 0, blocks.rows ? 0 : first, p.m,
              p.n};
          (blocks.rows ? block.rows : block.columns) =
              std::min(blocks.lines, (blocks.rows ? p.m : p.n) - first);
          block.z = (panel ? panel + batch * p.m * p.n : p.out.of<T>(product)) + block.row * block.pitch +
                    block.column;
          multiply(p, product, block);
          if (!p.plain()) finish_block(p, product, block);
        }
      });
}

template <class T>
Status run(const GemmProblem& p, T* panel) {
  store_bias_grad<T>(p);
  if (p.m == 0 || p.n == 0) return Status::ok();
  if constexpr (std::is_same_v<T, float>) {
    if (packs(p)) {
      for (int64_t i = 0; i < p.batch; ++i) {
        const Product product = p.product(i);
        AICF_TRY(multiply_packed(p, product, panel ? panel + i * p.m * p.n : p.out.of<float>(product),
                                 panel ? p.n : p.out.leading, [&](const Block<float>& block) {
                                   if (!p.plain()) finish_block(p, product, block);
                                 }));
      }
      return Status::ok();
    }
  }
  run_blas(p, panel);
  return Status::ok();
}

}  // namespace

size_t gemm_cpu_blas_workspace(const OpDesc& op) {
  const GemmProblem p = gemm_problem(op);
  return needs_panel(p) ? static_cast<size_t>(p.batch * p.m * p.n) * dtype_size(p.dtype) : 0;
}

Status gemm_cpu_blas(const GemmProblem& p, const LaunchContext& ctx) {
  if (!blas_loaded())
    return Status::state("no BLAS library is loaded; import aicf_mlir, which loads that of scipy-openblas32");
  void* panel = needs_panel(p) ? ctx.workspace : nullptr;
  if (p.dtype == DType::F32) return run(p, static_cast<float*>(panel));
  return run(p, static_cast<double*>(panel));
}

}  // namespace aicf
