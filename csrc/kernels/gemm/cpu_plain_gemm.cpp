// gemm and gemm_epilogue without a library: tile by tile, those of 16-bit floats packed where that is built.
#include "kernels/gemm/cpu_products.h"
#include "kernels/gemm/launch.h"

namespace aicf {
namespace {

using namespace cpu;

// Sums in f32 of so many bytes at once, by rows of the result.
constexpr int64_t kMostSums = int64_t{32} << 20;

int64_t rows_at_once(const GemmProblem& p) {
  return std::clamp<int64_t>(kMostSums / static_cast<int64_t>(sizeof(float)) / std::max<int64_t>(p.n, 1), 1,
                             std::max<int64_t>(p.m, 1));
}

template <class T>
Status run_packed(const GemmProblem& p, float* z) {
  const int64_t most = rows_at_once(p);
  for (int64_t i = 0; i < p.batch; ++i) {
    const Product product = p.product(i);
    for (int64_t row = 0; row < p.m; row += most) {
      GemmProblem part = p;
      part.m = std::min(most, p.m - row);
      part.a.data = static_cast<const T*>(p.a.data) + row * (p.trans_a ? 1 : p.a.leading);
      AICF_TRY(multiply_packed<T>(part, product, Beside{}, z, p.n, [&](const Block<float>& block) {
        finish_block(
            p, product,
            Block<T>{block.z, block.pitch, row + block.row, block.column, block.rows, block.columns});
      }));
    }
  }
  store_bias_grad<T>(p);
  return Status::ok();
}

// Rows of a tile of strips: what is packed of b for it is read so often.
constexpr int64_t kStripTileRows = 112;

// The tile of product_tile by strips that are packed for it; false without memory for them, or their product.
template <class T>
bool tile_of_strips(const Operand<T>& a, const Operand<T>& b, int64_t i, int64_t j, int64_t rows,
                    int64_t columns, int64_t k, float* z, int64_t pitch) {
#ifdef AICF_MICRO_KERNEL
  constexpr int64_t kA = kStripRows * kStripPitch, kB = kStripColumns * kDepth;
  float* const packed_a = packed_rows().room(divide_up(kStripTileRows, kStripRows) * kA);
  float* const packed_b = packed_group().room(divide_up(kTileColumns, kStripColumns) * kB);
  if (k == 0 || !packed_a || !packed_b) return false;
  Ahead ahead;
  for (int64_t start = 0; start < k; start += kDepth) {
    const int64_t depth = std::min(kDepth, k - start);
    const T* const left = a.data + i * a.row_stride() + start * a.column_stride();
    const T* const right = b.data + start * b.row_stride() + j * b.column_stride();
    for (int64_t r = 0; r < rows; r += kStripRows)
      pack_rows(left + r * a.row_stride(), a.leading, a.transposed, depth,
                std::min<int64_t>(kStripRows, rows - r), packed_a + r / kStripRows * kA);
    for (int64_t c = 0; c < columns; c += kStripColumns)
      pack_columns(right + c * b.column_stride(), b.leading, b.transposed, depth,
                   std::min<int64_t>(kStripColumns, columns - c), packed_b + c / kStripColumns * kB);
    for (int64_t r = 0; r < rows; r += kStripRows)
      for (int64_t c = 0; c < columns; c += kStripColumns) {
        const cpu::Target target{z + r * pitch + c, pitch, std::min<int64_t>(kStripRows, rows - r),
                                 std::min<int64_t>(kStripColumns, columns - c), start > 0};
        multiply_strips(a.transposed, depth,
                        {packed_a + r / kStripRows * kA, a.transposed ? kStripRows : kStripPitch},
                        {packed_b + c / kStripColumns * kB, nullptr, 0}, target, ahead);
      }
  }
  return true;
#else
  return false;
#endif
}

template <class T>
void run(const GemmProblem& p) {
  constexpr bool kStrips = kPacks && sizeof(T) == 2;
  constexpr int64_t kRows = kStrips ? kStripTileRows : kTileRows;
  const int64_t bands = (p.m + kRows - 1) / kRows;  // of rows, in each product
  const int64_t worth = kGrainProducts / std::max<int64_t>(1, kRows * p.n * p.k);
  in_parallel(p.batch * bands, std::max<int64_t>(1, worth), [&](int64_t begin, int64_t end) {
    Tiles<Compute<T>> tiles;
    Compute<T> z[kRows * kTileColumns];
    for (int64_t band = begin; band < end; ++band) {
      const Product product = p.product(band / bands);
      const Operand<T> a{p.a.of<const T>(product), p.trans_a, p.a.leading};
      const Operand<T> b{p.b.of<const T>(product), p.trans_b, p.b.leading};
      const int64_t i = band % bands * kRows;
      for (int64_t j = 0; j < p.n; j += kTileColumns) {
        const int64_t rows = std::min(kRows, p.m - i), columns = std::min(kTileColumns, p.n - j);
        bool done = false;
        if constexpr (kStrips) done = tile_of_strips(a, b, i, j, rows, columns, p.k, z, columns);
        for (int64_t r = 0; !done && r < rows; r += kTileRows)
          product_tile(tiles, a, b, i + r, j, std::min(kTileRows, rows - r), columns, p.k, z + r * columns,
                       columns);
        finish_block(p, product, Block<T>{z, columns, i, j, rows, columns});
      }
    }
  });
  store_bias_grad<T>(p);
}

}  // namespace

size_t gemm_cpu_plain_workspace(const OpDesc& op) {
  const GemmProblem p = gemm_problem(op);
  return packs_widened(p) ? static_cast<size_t>(rows_at_once(p) * p.n) * sizeof(float) : 0;
}

Status gemm_cpu_plain(const GemmProblem& p, const LaunchContext& ctx) {
  if (packs_widened(p)) {
    auto* z = static_cast<float*>(ctx.workspace);
    return p.dtype == DType::BF16 ? run_packed<BFloat16>(p, z) : run_packed<Half>(p, z);
  }
  return with_float_type(p.dtype, [&](auto tag) { run<typename decltype(tag)::type>(p); });
}

}  // namespace aicf
