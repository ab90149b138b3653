// Which elements of an image a convolution multiplies, as a matrix that is never in memory: a row for each
// window, a column for each position and channel. Parts of it are packed where they are needed.
#pragma once
#include <algorithm>
#include <vector>

#include "kernels/convolution/problem.h"
#include "kernels/gemm/cpu_deal.h"
#include "kernels/gemm/cpu_micro_kernel.h"

namespace aicf::cpu {

// One spatial dimension: element `row * stride + offset + j * spread` of `extent` is at the j-th position of
// window `row`. Positions are in the order of their elements: the j-th is `first + j * step` of the kernel.
struct Positions {
  int64_t count, first, step;
  int64_t stride, offset, spread, extent;
};

// The results of the windows: row r in each dimension is element `first + r * step` of `size`.
struct Results {
  int64_t rows, first, step, size;
};

// Windows over images [images, in, channels] of floats.
struct Windows {
  Positions at[kMostSpatial];
  Results to[kMostSpatial];
  int64_t images;
  int64_t channels, own;  // from element to element; of one group

  // Positions of the last dimension that are neighbours are one run of elements.
  bool joined() const { return own == channels && (at[2].spread == 1 || at[2].count == 1); }
  int64_t positions() const { return at[0].count * at[1].count * at[2].count; }
  int64_t depth() const { return positions() * own; }
  int64_t rows_of_image() const { return to[0].rows * to[1].rows * to[2].rows; }
  int64_t rows() const { return images * rows_of_image(); }
  // Whether all positions of all rows are inside the image, in one dimension or in all.
  bool inside(int d) const {
    const int64_t last = (to[d].rows - 1) * at[d].stride + at[d].offset + (at[d].count - 1) * at[d].spread;
    return at[d].offset >= 0 && last < at[d].extent;
  }
  bool inside() const { return inside(0) && inside(1) && inside(2); }
  // Whether the results of rows that follow one another do so in memory.
  bool gapless() const {
    return std::all_of(to, to + kMostSpatial, [](const Results& r) { return r.rows == r.size; });
  }
  // The number of a position in the kernel.
  int64_t position(int64_t number, const int64_t* kernel) const {
    const int64_t counts[] = {at[0].count, at[1].count, at[2].count};
    Place j = place_of(number, counts);
    for (int d = 0; d < kMostSpatial; ++d) j.at[d] = at[d].first + j.at[d] * at[d].step;
    return number_of(j, kernel);
  }
};

// A row of windows, which is walked from row to row.
struct Row {
  int64_t image, at[kMostSpatial];

  Row(const Windows& w, int64_t number) {
    for (int d = kMostSpatial - 1; d >= 0; --d) at[d] = number % w.to[d].rows, number /= w.to[d].rows;
    image = number;
  }
  void next_line(const Windows& w) {
    at[2] = 0;
    for (int d = 1; d >= 0; --d) {
      if (++at[d] < w.to[d].rows) return;
      at[d] = 0;
    }
    ++image;
  }
  // The element at the first position, in elements of one channel; it is to be inside the image.
  int64_t first_element(const Windows& w) const {
    int64_t number = image;
    for (int d = 0; d < kMostSpatial; ++d)
      number = number * w.at[d].extent + at[d] * w.at[d].stride + w.at[d].offset;
    return number;
  }
  // The element that the row makes, in elements of one channel.
  int64_t result(const Windows& w) const {
    int64_t number = image;
    for (int d = 0; d < kMostSpatial; ++d)
      number = number * w.to[d].size + w.to[d].first + at[d] * w.to[d].step;
    return number;
  }
};

inline void copy_run(float* to, const float* from, int64_t count) {
  for (; count >= kLanes; count -= kLanes, to += kLanes, from += kLanes) store(to, load(from));
  if (count > 0) store_first(to, load_first(from, count), count);
}
inline void clear_run(float* to, int64_t count) {
  for (; count >= kLanes; count -= kLanes, to += kLanes) store(to, Vector{});
  if (count > 0) store_first(to, Vector{}, count);
}

// The same run of `rows` rows, `step` elements from row to row where they are read.
inline void copy_runs(float* to, int64_t pitch, const float* from, int64_t step, int64_t rows,
                      int64_t count) {
  if (count == kLanes) {
    for (int64_t i = 0; i < rows; ++i) store(to + i * pitch, load(from + i * step));
  } else if (count < kLanes) {
    for (int64_t i = 0; i < rows; ++i) store_first(to + i * pitch, load_first(from + i * step, count), count);
  } else {
    for (int64_t i = 0; i < rows; ++i) copy_run(to + i * pitch, from + i * step, count);
  }
}

// Columns [begin, end) of `rows` rows from `first` on, to `to` with `pitch` elements from row to row; 0 where
// a window goes beyond the image. `source` is the group's first element.
inline void pack_windows(const Windows& w, const float* source, int64_t first, int64_t rows, int64_t begin,
                         int64_t end, float* to, int64_t pitch) {
  const bool joined = w.joined();
  const Positions& last = w.at[2];
  const int64_t run = w.own * (joined ? last.count : 1), last_count = joined ? 1 : last.count;
  const Row first_row(w, first);
  for (int64_t k = begin; k < end;) {
    const int64_t segment = k / run, q = k % run, count = std::min(run - q, end - k);
    const int64_t j[kMostSpatial] = {segment / last_count / w.at[1].count,
                                     segment / last_count % w.at[1].count, segment % last_count};
    int64_t offset[kMostSpatial];
    for (int d = 0; d < kMostSpatial; ++d) offset[d] = w.at[d].offset + j[d] * w.at[d].spread;
    // The elements of the run, from the first one of its first window on.
    const int64_t low = q / w.own, high = (q + count - 1) / w.own;
    float* row_to = to + (k - begin);
    Row row = first_row;
    for (int64_t left = rows; left > 0; row.next_line(w)) {
      const int64_t line = std::min(left, w.to[2].rows - row.at[2]);
      left -= line;
      const int64_t e0 = row.at[0] * w.at[0].stride + offset[0], e1 = row.at[1] * w.at[1].stride + offset[1];
      const int64_t e2 = row.at[2] * last.stride + offset[2];
      const bool inside = e0 >= 0 && e0 < w.at[0].extent && e1 >= 0 && e1 < w.at[1].extent;
      const float* const image_line =
          source + ((row.image * w.at[0].extent + e0) * w.at[1].extent + e1) * last.extent * w.channels;
      // The windows that have all elements of the run.
      const int64_t before = e2 + low < 0 ? divide_up(-(e2 + low), last.stride) : 0;
      const int64_t until = e2 + high < last.extent ? divide_up(last.extent - (e2 + high), last.stride) : 0;
      const int64_t whole_end = inside ? std::min(until, line) : 0, whole = std::min(before, whole_end);
      const auto edge = [&](int64_t i) {
        const int64_t e = e2 + i * last.stride;
        float* const here = row_to + i * pitch;
        const int64_t from = inside ? std::clamp(-e * w.own, q, q + count) : q + count;
        const int64_t to_end = std::clamp((last.extent - e) * w.own, from, q + count);
        if (count <= kLanes) {
          const Vector x = load_between(image_line + e * w.channels + q, from - q, to_end - q);
          return store_first(here, x, count);
        }
        clear_run(here, from - q);
        copy_run(here + (from - q), image_line + e * w.channels + from, to_end - from);
        clear_run(here + (to_end - q), q + count - to_end);
      };
      for (int64_t i = 0; i < whole; ++i) edge(i);
      copy_runs(row_to + whole * pitch, pitch, image_line + (e2 + whole * last.stride) * w.channels + q,
                last.stride * w.channels, whole_end - whole, count);
      for (int64_t i = whole_end; i < line; ++i) edge(i);
      row_to += line * pitch;
    }
    k += count;
  }
}

// Windows of one element each, in order: as those of one line.
inline Windows flattened(Windows w) {
  for (int d = 0; d < kMostSpatial; ++d) {
    const Positions& at = w.at[d];
    if (at.count != 1 || at.stride != 1 || at.offset != 0 || at.extent != w.to[d].rows || !w.gapless())
      return w;
  }
  const int64_t rows = w.rows();
  w.images = 1;
  for (int d = 0; d < kMostSpatial; ++d) {
    const int64_t size = d == kMostSpatial - 1 ? rows : 1;
    w.at[d].extent = w.to[d].rows = w.to[d].size = size;
  }
  return w;
}

// The windows of x that make y, forward and for the gradient of w.
inline Windows windows_of_x(const Convolution& c) {
  Windows w{{}, {}, c.images, c.channels, c.group_channels()};
  for (int d = 0; d < kMostSpatial; ++d) {
    w.at[d] = {c.kernel[d], 0, 1, c.stride[d], -c.low[d], c.dilation[d], c.in[d]};
    w.to[d] = {c.out[d], 0, 1, c.out[d]};
  }
  return flattened(w);
}

// Of one dimension the j-th position alone, of the rows that have an element there.
void choose_position(Positions* at, Results* to, int64_t j);

// The same windows in boxes, each of which has all elements of its positions; a dimension that would be
// divided into many is left as it is.
std::vector<Windows> boxes_of(const Windows& w);

// The windows of dy that make dx: one set for each element of a cell of stride x stride, of the positions
// that such elements have.
std::vector<Windows> windows_of_dy(const Convolution& c);

}  // namespace aicf::cpu
