// gemm, one thread per element of the result: the plainest kernel, the reference of the others, and the
// only one for f64.
#include "kernels/common/launch.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/launch.h"

namespace aicf {
namespace {

using namespace cuda;

constexpr int kTile = 16;  // threads of a block: kTile rows of kTile columns

template <class T>
__global__ void gemm_naive_kernel(const __grid_constant__ GemmProblem p, int64_t across) {
  const int64_t row = blockIdx.x / across * kTile + threadIdx.y,
                column = blockIdx.x % across * kTile + threadIdx.x;
  if (row >= p.m) return;
  const int64_t a_step = p.trans_a ? p.a.leading : 1, b_step = p.trans_b ? 1 : p.b.leading;
  for (int64_t batch = blockIdx.z; batch < p.batch; batch += gridDim.z) {
    const Product product = p.product(batch);
    const T* a = p.a.of<const T>(product) + (p.trans_a ? row : row * p.a.leading);
    if (p.bias_grad && column == 0) {
      Compute<T> sum = 0;
      for (int64_t l = 0; l < p.k; ++l) sum += widen(a[l * a_step]);
      static_cast<T*>(p.bias_grad)[row] = narrow<T>(sum);
    }
    if (column >= p.n) continue;
    const T* b = p.b.of<const T>(product) + (p.trans_b ? column * p.b.leading : column);
    Compute<T> z[1] = {0};
    for (int64_t l = 0; l < p.k; ++l) z[0] += widen(a[l * a_step]) * widen(b[l * b_step]);
    finish<T, 1>(p, product, z, row, column);
  }
}

}  // namespace

Status gemm_naive_cuda(const GemmProblem& p, const LaunchContext& ctx) {
  if (p.batch * p.m == 0) return Status::ok();
  const int64_t across = p.n > 0 ? ceil_div<int64_t>(p.n, kTile) : 1;
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(p.m, kTile) * across), 1,
                  static_cast<unsigned>(p.batch < 65535 ? p.batch : 65535));
  auto* kernel = p.dtype == DType::F64 ? gemm_naive_kernel<double> : gemm_naive_kernel<float>;
  return launch(ctx, grid, dim3(kTile, kTile), 0, kernel, p, across);
}

}  // namespace aicf
