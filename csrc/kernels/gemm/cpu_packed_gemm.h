// An f32 matrix product of our own: each operand is packed once and shared by all threads, where BLAS called
// for each block packs the other operand anew.
#pragma once
#include <algorithm>
#include <memory>
#include <new>

#include "kernels/common/cpu_parallel.h"
#include "kernels/gemm/cpu_epilogue.h"
#include "kernels/gemm/cpu_micro_kernel.h"

namespace aicf::cpu {

#ifdef AICF_MICRO_KERNEL

constexpr bool kPacks = true;

// Of the result that is computed at once, so that what is packed has a bound: 2 and 8 MB.
constexpr int64_t kBandRows = 72 * kStripRows, kBandColumns = 4096;
// Strips of a tile, the part of a thread: 112 x 128 elements with 16 lanes.
constexpr int64_t kRowStrips = 8, kColumnStrips = 4;

// Memory of a thread that lasts as long as the thread, for what it packs.
class Packed {
 public:
  // At least `count` floats, on a cache line; null where there is no memory.
  float* room(int64_t count) {
    if (count > count_) {
      data_.reset();
      data_.reset(static_cast<float*>(
          ::operator new(static_cast<size_t>(count) * sizeof(float), kLine, std::nothrow)));
      count_ = data_ ? count : 0;
    }
    return data_.get();
  }

 private:
  static constexpr std::align_val_t kLine{64};
  struct Free {
    void operator()(float* data) const { ::operator delete(data, kLine); }
  };
  std::unique_ptr<float, Free> data_;
  int64_t count_ = 0;
};

inline int64_t divide_up(int64_t x, int64_t y) { return (x + y - 1) / y; }

// `strips` in parts of about one size and at most `most` each.
struct Parts {
  int64_t strips, count, each;
  Parts(int64_t strips, int64_t most)
      : strips(strips), count(divide_up(strips, most)), each(divide_up(strips, count)) {
    count = divide_up(strips, each);
  }
  int64_t end(int64_t part) const { return std::min(strips, (part + 1) * each); }
};

// One product, m, n, k >= 1, to z with `pitch` elements from row to row; `finish(block)` is called for blocks
// of it that do not overlap, once each is complete. Code::Device without memory.
template <class Finish>
Status multiply_packed(const GemmProblem& p, const Product& product, float* z, int64_t pitch, Finish finish) {
  thread_local Packed packed;
  const float* a = p.a.of<const float>(product);
  const float* b = p.b.of<const float>(product);
  const int64_t a_strip = kStripRows * kStripPitch;
  const int64_t b_strip = kStripColumns * std::min(p.k, kDepth);
  const int64_t most_rows = divide_up(std::min(p.m, kBandRows), kStripRows);
  const int64_t most_columns = divide_up(std::min(p.n, kBandColumns), kStripColumns);
  float* const a_packed = packed.room(most_rows * a_strip + most_columns * b_strip);
  if (!a_packed) return Status::device("no memory for the operands of a matrix product");
  float* const b_packed = a_packed + most_rows * a_strip;

  for (int64_t column = 0; column < p.n; column += kBandColumns)
    for (int64_t start = 0; start < p.k; start += kDepth)
      for (int64_t row = 0; row < p.m; row += kBandRows) {
        const int64_t rows = std::min(kBandRows, p.m - row), columns = std::min(kBandColumns, p.n - column);
        const int64_t depth = std::min(kDepth, p.k - start);
        const int64_t a_strips = divide_up(rows, kStripRows), b_strips = divide_up(columns, kStripColumns);
        const int64_t b_new = row == 0 ? b_strips : 0;  // the bands of rows share b
        in_parallel(b_new + a_strips, grain_rows(kStripColumns * depth), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            if (i < b_new) {
              const int64_t j = column + i * kStripColumns;
              pack_columns(p.trans_b ? b + j * p.b.leading + start : b + start * p.b.leading + j, p.b.leading,
                           p.trans_b, depth, std::min<int64_t>(kStripColumns, p.n - j),
                           b_packed + i * b_strip);
            } else {
              const int64_t first = row + (i - b_new) * kStripRows;
              pack_rows(p.trans_a ? a + start * p.a.leading + first : a + first * p.a.leading + start,
                        p.a.leading, p.trans_a, depth, std::min<int64_t>(kStripRows, p.m - first),
                        a_packed + (i - b_new) * a_strip);
            }
        });
        const Parts across(a_strips, kRowStrips), along(b_strips, kColumnStrips);
        const int64_t tile = across.each * kStripRows * along.each * kStripColumns * depth;
        const int64_t grain = std::max<int64_t>(1, kGrainProducts / tile);
        in_parallel(across.count * along.count, grain, [&](int64_t begin, int64_t end) {
          for (int64_t t = begin; t < end; ++t) {
            const int64_t i0 = t % across.count * across.each, i1 = across.end(t % across.count);
            const int64_t j0 = t / across.count * along.each, j1 = along.end(t / across.count);
            Block<float> block{nullptr, pitch, row + i0 * kStripRows, column + j0 * kStripColumns, 0, 0};
            block.rows = std::min(row + rows, row + i1 * kStripRows) - block.row;
            block.columns = std::min(column + columns, column + j1 * kStripColumns) - block.column;
            block.z = z + block.row * pitch + block.column;
            for (int64_t i = i0; i < i1; ++i)
              for (int64_t j = j0; j < j1; ++j) {
                const int64_t i_in = (i - i0) * kStripRows, j_in = (j - j0) * kStripColumns;
                const Target target{block.z + i_in * pitch + j_in, pitch,
                                    std::min<int64_t>(kStripRows, block.rows - i_in),
                                    std::min<int64_t>(kStripColumns, block.columns - j_in), start > 0};
                multiply_strips(p.trans_a, depth, a_packed + i * a_strip, b_packed + j * b_strip, target);
              }
            if (start + depth == p.k) finish(block);
          }
        });
      }
  return Status::ok();
}

#else

constexpr bool kPacks = false;

template <class Finish>
Status multiply_packed(const GemmProblem&, const Product&, float*, int64_t, Finish) {
  return Status::state("this build has no product of its own");
}

#endif

}  // namespace aicf::cpu
