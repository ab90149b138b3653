// gemm and gemm_epilogue without a library, for every float dtype: tiles of the operands are widened into
// small arrays, so f16 and bf16 cost one conversion per use of a tile, and need no workspace.
#include "kernels/common/cpu_parallel.h"
#include "kernels/gemm/cpu_epilogue.h"
#include "kernels/gemm/launch.h"

namespace aicf {
namespace {

using namespace cpu;

// One tile of the result, and the part of k that is summed in a row before it meets the rest.
constexpr int64_t kRows = 32;
constexpr int64_t kColumns = 64;
constexpr int64_t kDepth = 64;

// The tile of rows i0.., columns j0.. of op(x), widened, to `to` with `pitch` elements between rows.
template <class T>
void widen_tile(const T* x, bool transposed, int64_t leading, int64_t i0, int64_t j0, int64_t rows,
                int64_t columns, int64_t pitch, Compute<T>* to) {
  const int64_t row_stride = transposed ? 1 : leading, column_stride = transposed ? leading : 1;
  const T* first = x + i0 * row_stride + j0 * column_stride;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      to[i * pitch + j] = widen(first[i * row_stride + j * column_stride]);
}

template <class C>
struct Tiles {
  C a[kRows * kDepth], b[kDepth * kColumns], part[kColumns], z[kRows * kColumns];
};

// z += a b, each element's terms of this depth summed first.
template <class C>
void multiply_tiles(Tiles<C>& t, int64_t rows, int64_t columns, int64_t depth) {
  for (int64_t i = 0; i < rows; ++i) {
    std::fill_n(t.part, columns, C(0));
    for (int64_t l = 0; l < depth; ++l) {
      const C a = t.a[i * kDepth + l];
      for (int64_t j = 0; j < columns; ++j) t.part[j] += a * t.b[l * kColumns + j];
    }
    for (int64_t j = 0; j < columns; ++j) t.z[i * columns + j] += t.part[j];
  }
}

template <class T>
void run(const GemmProblem& p) {
  const int64_t bands = (p.m + kRows - 1) / kRows;  // of rows, in each product
  const int64_t worth = kGrainProducts / std::max<int64_t>(1, kRows * p.n * p.k);
  in_parallel(p.batch * bands, std::max<int64_t>(1, worth), [&](int64_t begin, int64_t end) {
    Tiles<Compute<T>> t;
    for (int64_t band = begin; band < end; ++band) {
      const Product product = p.product(band / bands);
      const T *a = p.a.of<const T>(product), *b = p.b.of<const T>(product);
      const int64_t i = band % bands * kRows;
      for (int64_t j = 0; j < p.n; j += kColumns) {
        const int64_t rows = std::min(kRows, p.m - i), columns = std::min(kColumns, p.n - j);
        std::fill_n(t.z, rows * columns, Compute<T>(0));
        for (int64_t l = 0; l < p.k; l += kDepth) {
          const int64_t depth = std::min(kDepth, p.k - l);
          widen_tile(a, p.trans_a, p.a.leading, i, l, rows, depth, kDepth, t.a);
          widen_tile(b, p.trans_b, p.b.leading, l, j, depth, columns, kColumns, t.b);
          multiply_tiles(t, rows, columns, depth);
        }
        finish_block(p, product, Block<T>{t.z, columns, i, j, rows, columns});
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
