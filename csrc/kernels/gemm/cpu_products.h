// Matrix products on the CPU, and what is done with each block of one while it is still in the cache. Large
// and small products of f32, and large ones of 16-bit floats, are our own where the processor has what they
// need; others and f64 are those of BLAS, or tile by tile. The blocks follow from the sizes alone, so the
// same sizes give the same bits whatever the number of threads.
#pragma once
#include <algorithm>
#include <climits>
#include <type_traits>

#include "kernels/common/cpu_blas.h"
#include "kernels/common/cpu_parallel.h"
#include "kernels/gemm/cpu_epilogue.h"
#include "kernels/gemm/cpu_packed_gemm.h"
#include "kernels/gemm/cpu_small_gemm.h"
#include "kernels/gemm/cpu_tiles.h"
#include "kernels/gemm/problem.h"

namespace aicf::cpu {

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

// Below this packing does not pay; narrower operands would leave registers empty.
constexpr int64_t kLeastPacked = 1'000'000, kLeastExtent = 32;

inline bool is_large(const GemmProblem& p) {
  return double(p.m) * double(p.n) * double(p.k) >= double(kLeastPacked);
}

// Whether a product can be packed, or divided into blocks; and which of the two it is where nobody has asked.
inline bool can_pack(const GemmProblem& p) {
  return kPacks && p.dtype == DType::F32 && std::min(p.m, p.n) >= kLeastExtent;
}
inline bool packs(const GemmProblem& p) { return can_pack(p) && is_large(p); }
// Of f16 and bf16. Tiles whose strips are packed for them alone are as fast where k is short, and where there
// are many products for the threads.
inline bool packs_widened(const GemmProblem& p) {
  constexpr int64_t kShortest = 128, kFew = 4;
  constexpr double kLargest = 3e7;
  const bool is_one_of_many = p.batch >= kFew && double(p.m) * double(p.n) * double(p.k) < kLargest;
  return kPacks && dtype_size(p.dtype) == 2 && is_large(p) && p.k >= kShortest && !is_one_of_many;
}

// BLAS counts in ints.
inline bool fits_blas(const GemmProblem& p, int64_t pitch) {
  return std::max({p.m, p.n, p.k, p.a.leading, p.b.leading, pitch}) <= INT_MAX;
}

template <class T>
Operand<T> left_of(const GemmProblem& p, const Product& product) {
  return {p.a.of<const T>(product), p.trans_a, p.a.leading};
}
template <class T>
Operand<T> right_of(const GemmProblem& p, const Product& product) {
  return {p.b.of<const T>(product), p.trans_b, p.b.leading};
}

// A block of op(a) op(b) of one product, to block.z, by the calling thread.
template <class T>
void multiply_block(const GemmProblem& p, const Product& product, const Block<T>& block) {
  const Operand<T> a = left_of<T>(p, product), b = right_of<T>(p, product);
#ifdef AICF_MICRO_KERNEL
  if constexpr (std::is_same_v<T, float>) {
    if (is_small(block.rows, block.columns, p.k, p.trans_b)) {
      const Operand<T> rows{a.data + block.row * a.row_stride(), a.transposed, a.leading};
      const Operand<T> columns{b.data + block.column * b.column_stride(), b.transposed, b.leading};
      if (multiply_small(rows, columns, block.rows, block.columns, p.k, block.z, block.pitch)) return;
    }
  }
#endif
  if constexpr (std::is_floating_point_v<T>) {
    if (p.k > 0 && blas_loaded() && fits_blas(p, block.pitch))
      return blas_gemm(BlasProduct{block.rows, block.columns, p.k, p.trans_a, p.trans_b, p.a.leading,
                                   p.b.leading, block.pitch},
                       a.data + block.row * a.row_stride(), b.data + block.column * b.column_stride(),
                       block.z);
  }
  Tiles<Compute<T>> tiles;
  for (int64_t i = 0; i < block.rows; i += kTileRows)
    for (int64_t j = 0; j < block.columns; j += kTileColumns)
      product_tile(tiles, a, b, block.row + i, block.column + j, std::min(kTileRows, block.rows - i),
                   std::min(kTileColumns, block.columns - j), p.k, block.z + i * block.pitch + j,
                   block.pitch);
}

// All products, to the matrices z of Compute<T>, block by block. finish(batch, product, block) is called once
// for each block, when it is complete; blocks do not overlap.
template <class T, class Finish>
void multiply_in_blocks(const GemmProblem& p, const Matrices<void*>& z, const Finish& finish) {
  const Blocks blocks(p);
  const int64_t one = blocks.lines * std::min(p.m, p.n) * std::max<int64_t>(p.k, 1);  // multiplications
  in_parallel(
      p.batch * blocks.count, std::max<int64_t>(1, kGrainProducts / one), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t batch = i / blocks.count, first = i % blocks.count * blocks.lines;
          const Product product = p.product(batch);
          Block<T> block{nullptr, z.leading, blocks.rows ? first : 0, blocks.rows ? 0 : first, p.m, p.n};
          (blocks.rows ? block.rows : block.columns) =
              std::min(blocks.lines, (blocks.rows ? p.m : p.n) - first);
          block.z = z.of<Compute<T>>(product) + block.row * z.leading + block.column;
          multiply_block(p, product, block);
          finish(batch, product, block);
        }
      });
}

// The same, `packed` or block by block. beside(product) is what `finish` reads of one. Code::Device without
// memory for packed operands: then no block is finished.
template <class T, class ReadBeside, class Finish>
Status multiply(const GemmProblem& p, const Matrices<void*>& z, bool packed, const ReadBeside& beside,
                const Finish& finish) {
  if (p.m == 0 || p.n == 0) return Status::ok();
  if constexpr (!std::is_same_v<T, double>) {
    if (packed) {
      for (int64_t i = 0; i < p.batch; ++i) {
        const Product product = p.product(i);
        const auto finish_one = [&](const Block<float>& block) {
          finish(i, product,
                 Block<T>{block.z, block.pitch, block.row, block.column, block.rows, block.columns});
        };
        AICF_TRY(
            multiply_packed<T>(p, product, beside(product), z.of<float>(product), z.leading, finish_one));
      }
      return Status::ok();
    }
  }
  multiply_in_blocks<T>(p, z, finish);
  return Status::ok();
}

}  // namespace aicf::cpu
