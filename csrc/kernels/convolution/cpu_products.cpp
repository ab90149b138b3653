// A convolution of f32 on the CPU, or its gradient with respect to x, as a product of windows and weights:
// weights are packed once, windows strip by strip into the first cache. An element is a sum of chains of
// fused multiply-adds, each along one part of the positions and channels.
#include <atomic>

#include "kernels/common/cpu_parallel.h"
#include "kernels/convolution/cpu_windows.h"
#include "kernels/convolution/launch.h"
#include "kernels/gemm/cpu_deal.h"

namespace aicf {

using namespace cpu;

namespace {

constexpr int64_t kMostDepth = 1152;  // of a chain: 3 x 3 positions of 128 channels
constexpr int64_t kRowPitch = kMostDepth + 16;
constexpr int64_t kBlockStrips = 8, kBlockColumns = 256;  // what a thread computes at once
constexpr int64_t kWidest = 32;         // columns that are packed side by side, on whatever processor
constexpr int64_t kLeastChannels = 32;  // of a group: chains of fewer along a part of a line are too short

// A chain: `depth` columns of windows from `from` on, and rows of weights; where windows are read where they
// lie, as runs from the first element on.
struct Chain {
  int64_t from, weights, depth;
  std::vector<Run> runs = {};
};

// Windows with the same positions, and their weights: strips of columns, `packed` before the first one. Rows
// of long lines are read where they lie, in strips of one line each; others are packed. The chains are the
// same.
struct Part {
  Windows windows;
  int64_t packed, depth;
  bool in_place;
  Parts of_line;
  std::vector<Chain> chains;

  // A box of `whole`, or all of it.
  Part(const Windows& box, const Windows& whole, int64_t packed)
      : windows(box), packed(packed), depth(whole.depth()), of_line(box.to[2].rows, kStripRows) {
    in_place = box.inside() && box.joined() && 3 * of_line.each >= 2 * kStripRows;
    int64_t low[kMostSpatial];
    for (int d = 0; d < kMostSpatial; ++d) low[d] = (box.at[d].first - whole.at[d].first) / whole.at[d].step;
    const int64_t run = box.at[2].count * box.own, lines = box.at[1].count;
    std::vector<Chain> next_to;  // rows of weights that are
    for (int64_t i = 0; i < box.at[0].count * lines && run > 0; ++i) {
      const int64_t j0 = low[0] + i / lines, j1 = low[1] + i % lines;
      const int64_t at = ((j0 * whole.at[1].count + j1) * whole.at[2].count + low[2]) * box.own;
      if (next_to.empty() || next_to.back().weights + next_to.back().depth != at)
        next_to.push_back({i * run, at, 0});
      next_to.back().depth += run;
    }
    for (const Chain& each : next_to) {
      const Parts pieces(each.depth, kMostDepth);
      for (int64_t i = 0; i < pieces.count; ++i) {
        const int64_t begin = i * pieces.each;
        chains.push_back({each.from + begin, each.weights + begin, pieces.end(i) - begin});
        if (in_place) add_runs(&chains.back());
      }
    }
  }

  void add_runs(Chain* chain) const {
    const Windows& w = windows;
    const int64_t whole = w.at[2].count * w.own;
    for (int64_t k = chain->from, end = k + chain->depth; k < end;) {
      const int64_t line = k / whole, q = k % whole, length = std::min(whole - q, end - k);
      const int64_t j0 = line / w.at[1].count, j1 = line % w.at[1].count;
      const int64_t lines = j0 * w.at[0].spread * w.at[1].extent + j1 * w.at[1].spread;
      chain->runs.push_back({lines * w.at[2].extent * w.channels + q, length});
      k += length;
    }
  }

  int64_t strips() const {
    return in_place ? windows.rows() / windows.to[2].rows * of_line.count
                    : divide_up(windows.rows(), kStripRows);
  }
  // The first row of a strip, or the end of the last one.
  int64_t row(int64_t strip) const {
    if (!in_place) return std::min(windows.rows(), strip * kStripRows);
    return strip / of_line.count * windows.to[2].rows + strip % of_line.count * of_line.each;
  }
};

// Lines of few channels are padded, so that each window has all its elements there.
Windows padded(Windows w) {
  Positions& last = w.at[2];
  last.extent = (w.to[2].rows - 1) * last.stride + (last.count - 1) * last.spread + 1, last.offset = 0;
  return w;
}
int64_t padded_size(const Windows& w) {
  return w.images * w.at[0].extent * w.at[1].extent * w.at[2].extent * w.channels;
}
bool is_padded(const Convolution& c, const std::vector<Windows>& sets) {
  if (c.groups != 1 || sets.size() != 1 || sets[0].own >= kLeastChannels) return false;
  return sets[0].rows() > 0 && sets[0].depth() > 0 && !sets[0].inside(2);
}

}  // namespace

struct WindowProducts {
  Convolution c;
  bool forward;
  const float* source;
  float* result;
  int64_t columns, pitch;  // of one group, of the result
  std::vector<Windows> sets;
  Windows bare;             // the windows of images whose lines are padded first
  bool pads;                // whether they are
  std::vector<Part> parts;  // the boxes of the sets
  int64_t packed;           // of one group

  explicit WindowProducts(const Convolution& c)
      : c(c),
        forward(c.direction == Convolves::Forward),
        source(static_cast<const float*>(forward ? c.x : c.y)),
        result(static_cast<float*>(c.result())),
        columns(forward ? c.group_outputs() : c.group_channels()),
        pitch(forward ? c.outputs : c.channels),
        sets(forward ? std::vector<Windows>{windows_of_x(c)} : windows_of_dy(c)),
        pads(is_padded(c, sets)),
        packed(0) {
    if (pads) bare = sets[0], sets[0] = padded(bare);
    for (const Windows& w : sets) {
      const bool is_cut = w.own >= kLeastChannels || w.inside(2);
      if (w.rows() > 0)
        for (const Windows& box : is_cut ? boxes_of(w) : std::vector<Windows>{w})
          parts.emplace_back(box, w, packed);
      packed += w.depth() * strips() * kStripColumns;
    }
  }

  int64_t strips() const { return divide_up(columns, kStripColumns); }

  // Rows [begin, end) of the depth, of a strip of the weights of a group.
  void pack_weights(const Windows& w, int64_t group, int64_t strip, int64_t begin, int64_t end,
                    float* to) const {
    const int64_t own = c.group_channels(), whole = count_of(c.kernel) * own;
    const int64_t first = strip * kStripColumns, count = std::min<int64_t>(kStripColumns, columns - first);
    const float* const from = static_cast<const float*>(c.w) + group * c.group_outputs() * whole;
    if (forward) return pack_columns(from + first * whole + begin, whole, true, end - begin, count, to);
    for (int64_t k = begin; k < end;) {
      const int64_t outputs = c.group_outputs(), output = k % outputs;
      const int64_t depth = std::min(outputs - output, end - k);
      const int64_t position = w.position(k / outputs, c.kernel);
      pack_columns(from + output * whole + position * own + first, whole, false, depth, count, to);
      k += depth, to += depth * kStripColumns;
    }
  }

  void pack_weights(float* to) const {
    for (const Windows& w : sets) {
      const Parts pieces(w.depth(), kMostDepth);
      in_parallel(c.groups * strips() * pieces.count, grain_rows(kStripColumns * pieces.each),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t task = begin; task < end; ++task) {
                      const int64_t from = task % pieces.count * pieces.each;
                      const int64_t strip = task / pieces.count % strips();
                      const int64_t group = task / pieces.count / strips();
                      pack_weights(w, group, strip, from, pieces.end(task % pieces.count),
                                   to + group * packed + (strip * w.depth() + from) * kStripColumns);
                    }
                  });
      to += w.depth() * strips() * kStripColumns;
    }
  }

  // The images, their lines padded if they are to be, at `to`.
  const float* images(float* to) const {
    if (!pads) return source;
    const int64_t before = c.images * bare.at[0].extent * bare.at[1].extent, width = bare.at[2].extent;
    const int64_t line = sets[0].at[2].extent, offset = bare.at[2].offset;
    const int64_t low = std::clamp<int64_t>(-offset, 0, line), high = std::clamp(width - offset, low, line);
    in_parallel(before, grain_rows(line * bare.channels), [&](int64_t begin, int64_t end) {
      const int64_t channels = bare.channels;
      for (int64_t i = begin; i < end; ++i) {
        float* const here = to + i * line * channels;
        clear_run(here, low * channels);
        copy_run(here + low * channels, source + (i * width + low + offset) * channels,
                 (high - low) * channels);
        clear_run(here + high * channels, (line - high) * channels);
      }
    });
    return to;
  }

  // Strips [begin, end) of rows, and columns [column, column_end), of one group. `room` is for a strip of
  // windows each, and for the results where they are not equally far apart.
  void multiply(const Part& part, int64_t group, int64_t begin, int64_t end, int64_t column,
                int64_t column_end, const float* images, const float* weights, float* room) const {
    const Windows& w = part.windows;
    const int64_t first = part.row(begin), rows = part.row(end) - first, wide = column_end - column;
    const bool direct = !part.chains.empty() && (part.in_place || w.gapless());
    float* const own_results = room + kBlockStrips * kStripRows * kRowPitch;
    const float* const from = images + group * w.own;
    const int64_t z_pitch = direct ? pitch * w.to[2].step : wide;
    weights += group * packed + part.packed + column * part.depth;
    float* const to = result + group * columns + column;
    if (part.chains.empty()) std::fill_n(own_results, rows * wide, 0.0f);
    float* places[kBlockStrips * kStripRows];  // of the results, where they are elsewhere first
    Row row(w, first);
    for (int64_t i = 0; i < rows && !direct; row.next_line(w))
      for (; row.at[2] < w.to[2].rows && i < rows; ++row.at[2], ++i) places[i] = to + row.result(w) * pitch;
    Ahead ahead;
    for (const Chain& chain : part.chains) {
      const bool add = &chain != &part.chains.front(), last = &chain == &part.chains.back();
      if (!part.in_place)
        pack_windows(w, from, first, rows, chain.from, chain.from + chain.depth, room, kRowPitch);
      for (int64_t j = 0; j < wide; j += 2 * kStripColumns)
        for (int64_t strip = begin; strip < end; ++strip) {
          const int64_t i = part.row(strip) - first, count = part.row(strip + 1) - first - i;
          Rows a{room + i * kRowPitch, kRowPitch};
          float* z = own_results + i * wide;
          if (direct) {
            const Row here(w, first + i);
            z = to + here.result(w) * pitch;
            if (part.in_place)
              a = {from + here.first_element(w) * w.channels, w.at[2].stride * w.channels, chain.runs.data(),
                   static_cast<int64_t>(chain.runs.size())};
          }
          for (int64_t l = j; l < std::min(wide, j + 2 * kStripColumns); l += kStripColumns) {
            const int64_t across = std::min<int64_t>(kStripColumns, wide - l);
            if (last && !direct)
              for (int64_t r = i; r < i + count; ++r)
                for (int64_t line = 0; line < across; line += 16) __builtin_prefetch(places[r] + l + line, 1);
            const float* const b = weights + l * part.depth + chain.weights * kStripColumns;
            multiply_strips(false, chain.depth, a, {const_cast<float*>(b), nullptr, 0},
                            {z + l, z_pitch, count, across, add}, ahead);
          }
        }
    }
    for (int64_t i = 0; i < rows && !direct; ++i) copy_run(places[i], own_results + i * wide, wide);
  }

  // A block of rows and columns is a task.
  bool run(const float* images, const float* weights) const {
    const int64_t across = divide_up(columns, kBlockColumns);
    const int64_t each = divide_up(divide_up(columns, across), kStripColumns) * kStripColumns;
    int64_t strips_of_all = 0;
    for (const Part& part : parts) strips_of_all += part.strips();
    const int64_t high = std::clamp<int64_t>(strips_of_all * across * c.groups / 64, 1, kBlockStrips);
    std::vector<int64_t> ends;  // of the tasks of each part
    double products = 0;
    for (const Part& part : parts) {
      const int64_t blocks = divide_up(part.strips(), high);
      ends.push_back((ends.empty() ? 0 : ends.back()) + blocks * across * c.groups);
      products += double(part.windows.rows()) * double(part.windows.depth()) * double(columns);
    }
    if (ends.empty() || columns == 0) return true;
    const double task = std::max(1.0, products * double(c.groups) / double(ends.back()));
    const int64_t room = kBlockStrips * kStripRows * (kRowPitch + kBlockColumns + kWidest);
    std::atomic<bool> fits{true};
    in_parallel(ends.back(), std::max<int64_t>(1, int64_t(double(kGrainProducts) / task)),
                [&](int64_t begin, int64_t end) {
                  float* const mine = packed_rows().room(room);
                  if (!mine) return fits.store(false);
                  for (int64_t task = begin; task < end; ++task) {
                    const auto number =
                        static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), task) - ends.begin());
                    const Part& part = parts[number];
                    const int64_t own = task - (number > 0 ? ends[number - 1] : 0);
                    const int64_t column = own % across * each, group = own / across % c.groups;
                    const int64_t block = own / across / c.groups * high;
                    multiply(part, group, block, std::min(part.strips(), block + high), column,
                             std::min(columns, column + each), images, weights, mine);
                  }
                });
    return fits;
  }
};

// The bytes of the weights, packed on whatever processor; the padded images come after them.
static size_t bytes_of_weights(const Convolution& c) {
  const bool forward = c.direction == Convolves::Forward;
  const int64_t columns = forward ? c.group_outputs() : c.group_channels();
  const int64_t depth = (forward ? c.group_channels() : c.group_outputs()) * count_of(c.kernel);
  return static_cast<size_t>(c.groups * depth * divide_up(columns, kWidest) * kWidest) * sizeof(float);
}

size_t convolution_products_workspace(const OpDesc& op) {
  const WindowProducts products(convolution_of(op));
  const int64_t images = products.pads ? padded_size(products.sets[0]) : 0;
  return bytes_of_weights(products.c) + static_cast<size_t>(images) * sizeof(float);
}

std::shared_ptr<const WindowProducts> window_products_of(const OpDesc& op) {
  return std::make_shared<const WindowProducts>(convolution_of(op));
}

Status convolution_products(const std::shared_ptr<const WindowProducts>& products, const LaunchContext& ctx) {
  float* const weights = static_cast<float*>(ctx.workspace);
  products->pack_weights(weights);
  const float* const images = products->images(weights + bytes_of_weights(products->c) / sizeof(float));
  return products->run(images, weights) ? Status::ok()
                                        : Status::device("no memory for the windows of a convolution");
}

}  // namespace aicf
