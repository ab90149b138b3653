// A matrix product in f32 of our own. The rows of a are read where they lie, but for what is packed once for
// all threads: of f16 and bf16 all, since what is packed is widened. The columns of b are dealt in groups:
// the thread that takes one packs it for itself, and while it multiplies, what it packs next is fetched from
// memory. Once all groups are taken, threads help with the rows that are left of others' groups.
#pragma once
#include <algorithm>
#include <type_traits>

#include "kernels/common/cpu_parallel.h"
#include "kernels/gemm/cpu_deal.h"
#include "kernels/gemm/cpu_epilogue.h"
#include "kernels/gemm/cpu_micro_kernel.h"

namespace aicf::cpu {

#ifdef AICF_MICRO_KERNEL

constexpr bool kPacks = true;

// Rows that are computed at once: what is packed of a has a bound, 2 MB. Of those that are read where they
// lie there may be more.
constexpr int64_t kBandRows = 72 * kStripRows, kUnpackedBandRows = 64 * kBandRows;
// A group, and of its rows what a thread takes at once: 112 x 64 elements with 16 lanes.
constexpr int64_t kGroupColumns = 64, kRowStrips = 8;

// pack_columns and pack_rows of f16 and bf16.
template <class T>
void pack_columns(const T* b, int64_t leading, bool trans, int64_t depth, int64_t columns, float* to) {
  constexpr int64_t kLines = 16;  // of the strip, which stay in the first cache meanwhile
  for (int64_t start = 0; start < depth; start += kLines) {
    const int64_t end = std::min(depth, start + kLines);
    if (columns < kStripColumns) std::fill(to + start * kStripColumns, to + end * kStripColumns, 0.0f);
    if (trans) {
      for (int64_t j = 0; j < columns; ++j)
        for (int64_t l = start; l < end; ++l) to[l * kStripColumns + j] = widen(b[j * leading + l]);
    } else {
      for (int64_t l = start; l < end; ++l)
        for (int64_t j = 0; j < columns; ++j) to[l * kStripColumns + j] = widen(b[l * leading + j]);
    }
  }
}
template <class T>
void pack_rows(const T* a, int64_t leading, bool trans, int64_t depth, int64_t rows, float* to) {
  if (!trans) {
    for (int64_t i = 0; i < kStripRows; ++i)
      for (int64_t l = 0; l < depth; ++l)
        to[i * kStripPitch + l] = i < rows ? widen(a[i * leading + l]) : 0.0f;
    return;
  }
  for (int64_t l = 0; l < depth; ++l, to += kStripRows)
    for (int64_t i = 0; i < kStripRows; ++i) to[i] = i < rows ? widen(a[l * leading + i]) : 0.0f;
}

// Whether strips of a are read where they lie. With a pitch of a multiple of 4 KB what a strip reads shares
// few sets of the caches; that matters unless it lies by columns and a strip takes nearly a whole line of
// each.
template <class T>
bool lies_well(const GemmProblem& p) {
  if (!std::is_same_v<T, float>) return false;
  return p.a.leading % 1024 != 0 || (p.trans_a && kStripRows * sizeof(float) > 48);
}

// A band of rows of a, and what is multiplied with them.
template <class T>
struct Band {
  const GemmProblem& p;
  const Beside& beside;
  const T *a, *b;     // from the band's first row or column, and k, on
  int64_t row, rows;  // of the result
  int64_t column, columns;
  int64_t depth;
  bool first, last;  // of the parts of k
  float* packed;     // strips of a that are not read where they lie

  static constexpr int64_t kStrip = kStripRows * kStripPitch;

  int64_t strips() const { return divide_up(rows, kStripRows); }
  int64_t unpacked() const { return lies_well<T>(p) ? rows / kStripRows : 0; }
  const T* strip(int64_t i) const { return a + i * kStripRows * (p.trans_a ? 1 : p.a.leading); }
  Rows rows_of(int64_t i) const {
    if constexpr (std::is_same_v<T, float>)
      if (i < unpacked()) return {strip(i), p.a.leading};
    return {packed + (i - unpacked()) * kStrip, p.trans_a ? kStripRows : kStripPitch};
  }

  void pack_strips() const {
    const int64_t first = unpacked();
    in_parallel(strips() - first, grain_rows(kStripRows * depth), [&](int64_t begin, int64_t end) {
      for (int64_t i = first + begin; i < first + end; ++i)
        pack_rows(strip(i), p.a.leading, p.trans_a, depth,
                  std::min<int64_t>(kStripRows, rows - i * kStripRows), packed + (i - first) * kStrip);
    });
  }

  const T* group(int64_t g) const { return b + g * kGroupColumns * (p.trans_b ? p.b.leading : 1); }
  int64_t columns_of(int64_t g) const { return std::min(kGroupColumns, columns - g * kGroupColumns); }

  Lines lines_of(int64_t g) const {
    const int64_t size = sizeof(T), step = p.b.leading * size;
    const char* const from = reinterpret_cast<const char*>(group(g));
    return p.trans_b ? Lines{from, step, depth * size, columns_of(g)}
                     : Lines{from, step, columns_of(g) * size, depth};
  }

  // Has what the epilogue reads beside the block fetched while the block is computed.
  void fetch_beside(const Block<float>& block, Ahead& ahead) const {
    ahead.count = last ? beside.count : 0, ahead.each = 1;
    const int64_t steps = divide_up(block.rows, kStripRows) * divide_up(block.columns, kStripColumns) *
                          divide_up(depth, kStepsPerLine);
    for (int i = 0; i < ahead.count; ++i) {
      const auto& [data, pitch, size] = beside.operands[i];
      ahead.beside[i] = {data + block.row * pitch + block.column * size, pitch, block.columns * size,
                         block.rows};
      ahead.each = std::max(ahead.each, divide_up(ahead.beside[i].count(), steps));
    }
  }

  // Whether the first product with a strip of the group packs it.
  bool packs_on_the_way(int64_t g, int64_t j) const {
    return std::is_same_v<T, float> && !p.trans_b && j + kStripColumns <= columns_of(g);
  }

  // What is not packed on the way.
  void pack(int64_t g, float* to) const {
    for (int64_t j = 0; j < columns_of(g); j += kStripColumns)
      if (!packs_on_the_way(g, j))
        pack_columns(group(g) + j * (p.trans_b ? p.b.leading : 1), p.b.leading, p.trans_b, depth,
                     std::min<int64_t>(kStripColumns, columns_of(g) - j), to + j * depth);
  }

  // Strips [begin, end) of rows times group g, to `z`, the result; the part of it that is computed. `fresh`:
  // these are the first with the group.
  Block<float> multiply(int64_t begin, int64_t end, int64_t g, float* group, bool fresh, float* z,
                        int64_t pitch, Ahead& ahead) const {
    Block<float> block;
    block.pitch = pitch;
    block.row = row + begin * kStripRows,
    block.rows = std::min(row + rows, row + end * kStripRows) - block.row;
    block.column = column + g * kGroupColumns, block.columns = columns_of(g);
    block.z = z + block.row * pitch + block.column;
    fetch_beside(block, ahead);
    for (int64_t i = 0; i < block.rows; i += kStripRows)
      for (int64_t j = 0; j < block.columns; j += kStripColumns) {
        const Target target{block.z + i * pitch + j, pitch, std::min<int64_t>(kStripRows, block.rows - i),
                            std::min<int64_t>(kStripColumns, block.columns - j), !first};
        const float* from = nullptr;
        if constexpr (std::is_same_v<T, float>)
          if (fresh && i == 0 && packs_on_the_way(g, j)) from = this->group(g) + j;
        multiply_strips(p.trans_a, depth, rows_of(begin + i / kStripRows),
                        {group + j * depth, from, p.b.leading}, target, ahead);
      }
    return block;
  }
};

// One product of elements T, m, n, k >= 1, to z with `pitch` elements from row to row; `finish(block)` is
// called for blocks of it that do not overlap, once each is complete, and reads `beside` there. Code::Device
// without memory.
template <class T, class Finish>
Status multiply_packed(const GemmProblem& p, const Product& product, const Beside& beside, float* z,
                       int64_t pitch, Finish finish) {
  const T* a = p.a.of<const T>(product);
  const T* b = p.b.of<const T>(product);
  const int64_t group_size = kGroupColumns * std::min(p.k, kDepth);
  const int64_t band_rows = lies_well<T>(p) ? kUnpackedBandRows : kBandRows;
  const int64_t most_packed = lies_well<T>(p) ? 1 : divide_up(std::min(p.m, kBandRows), kStripRows);
  float* const packed = packed_rows().room(most_packed * Band<T>::kStrip);
  float* const mine = packed_group().room(group_size);
  if (!packed || !mine) return Status::device("no memory for the operands of a matrix product");

  for (int64_t column = 0; column < p.n; column += kMostGroups * kGroupColumns)
    for (int64_t start = 0; start < p.k; start += kDepth)
      for (int64_t row = 0; row < p.m; row += band_rows) {
        const Band<T> band{.p = p,
                           .beside = beside,
                           .a = a + (p.trans_a ? start * p.a.leading + row : row * p.a.leading + start),
                           .b = b + (p.trans_b ? column * p.b.leading + start : start * p.b.leading + column),
                           .row = row,
                           .rows = std::min(band_rows, p.m - row),
                           .column = column,
                           .columns = std::min(kMostGroups * kGroupColumns, p.n - column),
                           .depth = std::min(kDepth, p.k - start),
                           .first = start == 0,
                           .last = start + kDepth >= p.k,
                           .packed = packed};
        band.pack_strips();
        const Parts parts(band.strips(), kRowStrips);
        const int64_t groups = divide_up(band.columns, kGroupColumns);
        Deal deal(groups, parts.count);
        const auto work = [&](float* group) {
          deal.run([&](int64_t g, int64_t next, auto take) {
            int64_t part = take();
            if (part >= parts.count) return;
            band.pack(g, group);
            Ahead ahead;
            if (next < groups) ahead.next = band.lines_of(next);
            for (bool fresh = true; part < parts.count; part = take(), fresh = false) {
              const Block<float> block =
                  band.multiply(part * parts.each, parts.end(part), g, group, fresh, z, pitch, ahead);
              if (band.last) finish(block);
            }
          });
        };
        const int64_t tile = parts.each * kStripRows * std::min(kGroupColumns, band.columns) * band.depth;
        in_parallel(groups * parts.count, std::max<int64_t>(1, kGrainProducts / tile), [&](int64_t, int64_t) {
          if (float* const group = packed_group().room(group_size)) work(group);
        });
        work(mine);  // what threads without memory have left
      }
  return Status::ok();
}

#else

constexpr bool kPacks = false;

template <class T, class Finish>
Status multiply_packed(const GemmProblem&, const Product&, const Beside&, float*, int64_t, Finish) {
  return Status::state("this build has no product of its own");
}

#endif

}  // namespace aicf::cpu
