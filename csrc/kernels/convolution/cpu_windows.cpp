// Windows with their positions in the order of the elements, and windows divided.
#include "kernels/convolution/cpu_windows.h"

#include <numeric>
#include <utility>

namespace aicf::cpu {

// Along one dimension: element `first + t * stride` is at position k of window
// t + (first + low - k * dilation) / stride, where that is a whole number.
static void split_dimension(const Convolution& c, int d, int64_t first, Positions* at, Results* to) {
  const int64_t s = c.stride[d], shared = std::gcd(s, c.dilation[d]), step = s / shared;
  const int64_t rows = c.in[d] > first ? divide_up(c.in[d] - first, s) : 0;
  *to = {rows, first, rows > 1 ? s : 1, c.in[d]};  // one row alone is next to that of the next image
  *at = {0, 0, -step, 1, 0, c.dilation[d] / shared, c.out[d]};
  for (int64_t k = 0; k < std::min(c.kernel[d], step); ++k)
    if ((first + c.low[d] - k * c.dilation[d]) % s == 0) {
      at->count = divide_up(c.kernel[d] - k, step);
      at->first = k + (at->count - 1) * step;  // the last position has the first window
      at->offset = (first + c.low[d] - at->first * c.dilation[d]) / s;
    }
}

std::vector<Windows> windows_of_dy(const Convolution& c) {
  std::vector<Windows> all;
  int64_t cell[kMostSpatial];  // or as much of it as an image has
  for (int d = 0; d < kMostSpatial; ++d) cell[d] = std::min(c.stride[d], c.in[d]);
  for (int64_t number = 0; number < count_of(cell); ++number) {
    const Place first = place_of(number, cell);
    Windows w{{}, {}, c.images, c.outputs, c.group_outputs()};
    for (int d = 0; d < kMostSpatial; ++d) split_dimension(c, d, first.at[d], &w.at[d], &w.to[d]);
    if (w.rows() > 0) all.push_back(flattened(w));
  }
  return all;
}

// Parts of one dimension whose rows have the same positions within the image.
static std::vector<std::pair<Positions, Results>> parts_of(const Positions& at, const Results& to) {
  std::vector<std::pair<Positions, Results>> all;
  int64_t low_before = -1, high_before = -1;
  for (int64_t row = 0; row < to.rows; ++row) {
    const int64_t e = row * at.stride + at.offset;
    const int64_t low = e < 0 ? divide_up(-e, at.spread) : 0;
    const int64_t high = e < at.extent ? std::min(at.count, divide_up(at.extent - e, at.spread)) : 0;
    if (low != low_before || high != high_before) {
      const int64_t count = std::max<int64_t>(0, high - low);
      all.push_back(
          {{count, at.first + low * at.step, at.step, at.stride, e + low * at.spread, at.spread, at.extent},
           {0, to.first + row * to.step, to.step, to.size}});
      low_before = low, high_before = high;
    }
    ++all.back().second.rows;
  }
  return all;
}

void choose_position(Positions* at, Results* to, int64_t j) {
  const int64_t e = at->offset + j * at->spread;
  const int64_t low = e < 0 ? divide_up(-e, at->stride) : 0;
  const int64_t high = e < at->extent ? std::min(to->rows, divide_up(at->extent - e, at->stride)) : 0;
  *at = {1, at->first + j * at->step, at->step, at->stride, e + low * at->stride, at->spread, at->extent};
  *to = {std::max<int64_t>(0, high - low), to->first + low * to->step, to->step, to->size};
}

constexpr size_t kMostParts = 16;  // of a dimension

std::vector<Windows> boxes_of(const Windows& w) {
  std::vector<Windows> boxes{w};
  for (int d = 0; d < kMostSpatial; ++d) {
    std::vector<Windows> more;
    const auto parts = parts_of(w.at[d], w.to[d]);
    if (parts.size() > kMostParts) continue;
    for (const auto& [at, to] : parts)
      for (Windows box : boxes) {
        box.at[d] = at, box.to[d] = to;
        more.push_back(box);
      }
    boxes = std::move(more);
  }
  return boxes;
}

}  // namespace aicf::cpu
