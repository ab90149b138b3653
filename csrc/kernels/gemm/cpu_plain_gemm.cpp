// gemm and gemm_epilogue without a library, tile by tile.
#include "kernels/common/cpu_parallel.h"
#include "kernels/gemm/cpu_epilogue.h"
#include "kernels/gemm/cpu_tiles.h"
#include "kernels/gemm/launch.h"

namespace aicf {
namespace {

using namespace cpu;

template <class T>
void run(const GemmProblem& p) {
  const int64_t bands = (p.m + kTileRows - 1) / kTileRows;  // of rows, in each product
  const int64_t worth = kGrainProducts / std::max<int64_t>(1, kTileRows * p.n * p.k);
  in_parallel(p.batch * bands, std::max<int64_t>(1, worth), [&](int64_t begin, int64_t end) {
    Tiles<Compute<T>> tiles;
    Compute<T> z[kTileRows * kTileColumns];
    for (int64_t band = begin; band < end; ++band) {
      const Product product = p.product(band / bands);
      const Operand<T> a{p.a.of<const T>(product), p.trans_a, p.a.leading};
      const Operand<T> b{p.b.of<const T>(product), p.trans_b, p.b.leading};
      const int64_t i = band % bands * kTileRows;
      for (int64_t j = 0; j < p.n; j += kTileColumns) {
        const int64_t rows = std::min(kTileRows, p.m - i), columns = std::min(kTileColumns, p.n - j);
        product_tile(tiles, a, b, i, j, rows, columns, p.k, z, columns);
        finish_block(p, product, Block<T>{z, columns, i, j, rows, columns});
      }
    }
  });
  store_bias_grad<T>(p);
}

}  // namespace

Status gemm_cpu_plain(const GemmProblem& p, const LaunchContext&) {
  return with_float_type(p.dtype, [&](auto tag) { run<typename decltype(tag)::type>(p); });
}

}  // namespace aicf
