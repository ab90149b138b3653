// The gradient of a convolution of f32 with respect to w on the CPU, as a product of dy and the windows of x.
// Windows are packed by the thread that multiplies them; an element is a sum of chains of fused
// multiply-adds, each along one part of the windows.
#include <atomic>

#include "kernels/common/cpu_parallel.h"
#include "kernels/convolution/cpu_windows.h"
#include "kernels/convolution/launch.h"
#include "kernels/gemm/cpu_deal.h"

namespace aicf {

using namespace cpu;

namespace {

constexpr int64_t kChain = 1024;                 // windows
constexpr int64_t kColumns = 2 * kStripColumns;  // of a group that is dealt
constexpr int64_t kWidest = 64;                  // the same on whatever processor
constexpr int64_t kRowStrips = 8;                // that a thread takes at once
constexpr int64_t kHighest = 112;
constexpr int64_t kLeastTiles = 8;  // that threads share well

// Columns [begin, end) of windows, which are [column, column + end - begin) of the gradient.
struct Group {
  Windows windows;
  int64_t begin, end, column;
};

// The gradient of one group of channels, [outputs, positions and channels].
struct Weights {
  const Convolution& c;
  const float *x, *dy;
  int64_t rows, columns, strips;  // of rows
  std::vector<Group> groups;      // of columns

  Weights(const Convolution& c, const Windows& w, int64_t group)
      : c(c),
        x(static_cast<const float*>(c.x) + group * w.own),
        dy(static_cast<const float*>(c.y) + group * c.group_outputs()),
        rows(c.group_outputs()),
        columns(w.depth()),
        strips(divide_up(rows, kStripRows)) {
    for (int64_t column = 0; column < columns; column += kColumns)
      groups.push_back(group_of(w, column, std::min(columns, column + kColumns)));
  }

  // Those of one position: of the windows that have an element there.
  static Group group_of(const Windows& w, int64_t column, int64_t end) {
    Group group{w, column, end, column};
    if (w.own % kWidest != 0) return group;
    const int64_t counts[] = {w.at[0].count, w.at[1].count, w.at[2].count};
    const Place j = place_of(column / w.own, counts);
    for (int d = 0; d < kMostSpatial; ++d)
      choose_position(&group.windows.at[d], &group.windows.to[d], j.at[d]);
    group.begin = column % w.own;
    group.end = group.begin + end - column;
    return group;
  }

  int64_t first_row(int64_t strip) const { return rows * strip / strips; }

  // Windows [first, first + depth) of a group, to `to`; and the rows of dy that belong to them, to `runs`.
  void pack(const Group& group, int64_t first, int64_t depth, float* to, std::vector<Run>* runs) const {
    const Windows& w = group.windows;
    for (int64_t j = group.begin; j < group.end; j += kStripColumns, to += depth * kStripColumns)
      pack_windows(w, x, first, depth, j, std::min(group.end, j + kStripColumns), to, kStripColumns);
    runs->clear();
    Row row(w, first);
    for (int64_t left = depth; left > 0; row.next_line(w)) {
      const int64_t length = std::min(left, w.to[2].rows - row.at[2]), offset = row.result(w) * c.outputs;
      if (runs->empty() || runs->back().offset + runs->back().length * c.outputs != offset)
        runs->push_back({offset, 0});
      runs->back().length += length, left -= length;
    }
  }

  // Strips [begin, end) of rows; `add`: to what is in z.
  void multiply(const Group& group, int64_t begin, int64_t end, int64_t depth, float* packed,
                const std::vector<Run>& runs, float* z, bool add) const {
    Ahead ahead;
    for (int64_t strip = begin; strip < end; ++strip) {
      const int64_t row = first_row(strip), count = first_row(strip + 1) - row;
      for (int64_t j = 0; j < group.end - group.begin; j += kStripColumns)
        multiply_strips(true, depth, {dy + row, c.outputs, runs.data(), static_cast<int64_t>(runs.size())},
                        {packed + j * depth, nullptr, 0},
                        {z + row * columns + group.column + j, columns, count,
                         std::min<int64_t>(kStripColumns, group.end - group.begin - j), add},
                        ahead);
    }
  }

  // Rows without any window.
  void clear(const Group& group, int64_t begin, int64_t end, float* z) const {
    for (int64_t row = first_row(begin); row < first_row(end); ++row)
      clear_run(z + row * columns + group.column, group.end - group.begin);
  }
};

// Columns and rows are dealt to the threads.
bool add_chain(const Weights& weights, int64_t first, float* z) {
  const Parts parts(weights.strips, kRowStrips);
  const int64_t tile =
      std::min(weights.rows, parts.each * kStripRows) * std::min(kColumns, weights.columns) * kChain;
  std::atomic<bool> fits{true};
  const auto all = static_cast<int64_t>(weights.groups.size());
  for (int64_t begin = 0; begin < all; begin += kMostGroups) {
    const int64_t groups = std::min(kMostGroups, all - begin);
    Deal deal(groups, parts.count);
    in_parallel(groups * parts.count, std::max<int64_t>(1, kGrainProducts / tile), [&](int64_t, int64_t) {
      float* const packed = packed_group().room(kColumns * kChain);
      if (!packed) return fits.store(false);
      std::vector<Run> runs;
      deal.run([&](int64_t g, int64_t, auto take) {
        int64_t part = take();
        if (part >= parts.count) return;
        const Group& group = weights.groups[begin + g];
        const int64_t depth = std::min(kChain, group.windows.rows() - first);
        if (depth > 0) weights.pack(group, first, depth, packed, &runs);
        for (; part < parts.count; part = take())
          if (depth > 0)
            weights.multiply(group, part * parts.each, parts.end(part), depth, packed, runs, z, first > 0);
          else if (first == 0)
            weights.clear(group, part * parts.each, parts.end(part), z);
      });
    });
  }
  return fits;
}

// A small gradient is computed in slices of the windows, each of them by a thread: how many.
int64_t slices_of(const Convolution& c) {
  const int64_t columns = c.group_channels() * count_of(c.kernel);
  const int64_t tiles = divide_up(columns, kWidest) * divide_up(c.group_outputs(), kHighest);
  const int64_t chains = divide_up(c.images * count_of(c.out), kChain);
  return tiles == 0 || tiles >= kLeastTiles ? 1
                                            : std::clamp<int64_t>(chains, 1, divide_up(kLeastTiles, tiles));
}

bool add_slices(const Weights& weights, int64_t chains, int64_t slices, float* z) {
  const int64_t size = weights.rows * weights.columns;
  std::atomic<bool> fits{true};
  const auto run = [&](int64_t begin, int64_t end) {
    float* const packed = packed_group().room(kColumns * kChain);
    if (!packed) return fits.store(false);
    std::vector<Run> runs;
    for (int64_t slice = begin; slice < end; ++slice) {
      const int64_t start = chains * slice / slices, stop = chains * (slice + 1) / slices;
      for (const Group& group : weights.groups) {
        for (int64_t chain = start; chain < stop; ++chain) {
          const int64_t first = chain * kChain, depth = std::min(kChain, group.windows.rows() - first);
          if (depth > 0) {
            weights.pack(group, first, depth, packed, &runs);
            weights.multiply(group, 0, weights.strips, depth, packed, runs, z + slice * size, chain > start);
          } else if (chain == start) {
            weights.clear(group, 0, weights.strips, z + slice * size);
          }
        }
      }
    }
  };
  in_parallel(slices, std::max<int64_t>(1, kGrainProducts / (size * chains * kChain / slices)), run);
  return fits;
}

}  // namespace

size_t convolution_weight_products_workspace(const OpDesc& op) {
  const Convolution c = convolution_of(op);
  const int64_t slices = slices_of(c);
  return slices == 1 ? 0 : static_cast<size_t>(slices * c.result_count() / c.groups) * sizeof(float);
}

Status convolution_weight_products(const Convolution& c, const LaunchContext& ctx) {
  const Windows w = windows_of_x(c);
  const int64_t size = c.result_count() / c.groups, all = w.rows(), slices = slices_of(c);
  float* const dw = static_cast<float*>(c.w);
  float* const sums = static_cast<float*>(ctx.workspace);
  if (size == 0) return Status::ok();
  if (all == 0) clear_run(dw, c.result_count());
  bool fits = true;
  for (int64_t group = 0; group < c.groups && all > 0; ++group) {
    const Weights weights(c, w, group);
    float* const z = dw + group * size;
    if (slices == 1) {
      for (int64_t first = 0; first < all; first += kChain) fits = add_chain(weights, first, z) && fits;
      continue;
    }
    fits = add_slices(weights, divide_up(all, kChain), slices, sums) && fits;
    for (int64_t i = 0; i < size; ++i) {
      float sum = sums[i];
      for (int64_t slice = 1; slice < slices; ++slice) sum += sums[slice * size + i];
      z[i] = sum;
    }
  }
  return fits ? Status::ok() : Status::device("no memory for the windows of a convolution");
}

}  // namespace aicf
