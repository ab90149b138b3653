// A convolution of f32 on the CPU whose groups have one channel and one output, and its gradients: a vector
// has as many channels. An element of y or dx is one chain of fused multiply-adds along the positions. An
// element of dw is the sum, in f64, of chains along the lines of at most kMostParts parts of the windows.
#include "kernels/common/cpu_parallel.h"
#include "kernels/convolution/cpu_windows.h"
#include "kernels/convolution/launch.h"
#include "kernels/gemm/cpu_deal.h"

namespace aicf {

using namespace cpu;

namespace {

constexpr int64_t kMostParts = 32;
constexpr int kSideBySide = 8;  // windows of a line: sums in registers

// A vector of channels, or the first `count` of one.
template <bool kWhole>
Vector load_some(const float* from, int64_t count) {
  return kWhole ? load(from) : load_first(from, count);
}
template <bool kWhole>
void store_some(float* to, Vector x, int64_t count) {
  kWhole ? store(to, x) : store_first(to, x, count);
}
// f(whole) for `count` of a vector's channels.
template <class F>
void with_lanes(int64_t count, F f) {
  count == kLanes ? f(std::true_type()) : f(std::false_type());
}

// A position and where its elements are for one line of windows.
struct Lane {
  int64_t number;      // among the positions
  const float* first;  // the element of window 0; where there is none, of one beyond the image
  int64_t begin, end;  // windows that have it
};

// The positions that have elements for this line of `width` windows.
int64_t lanes_of(const Windows& w, const Row& row, const float* source, Lane* lanes) {
  int64_t count = 0;
  for (int64_t j = 0; j < w.positions(); ++j) {
    const int64_t counts[] = {w.at[0].count, w.at[1].count, w.at[2].count};
    const Place at = place_of(j, counts);
    int64_t line = row.image, e[kMostSpatial];
    bool inside = true;
    for (int d = 0; d < kMostSpatial; ++d) e[d] = w.at[d].offset + at.at[d] * w.at[d].spread;
    for (int d = 0; d < kMostSpatial - 1; ++d) {
      e[d] += row.at[d] * w.at[d].stride;
      inside = inside && e[d] >= 0 && e[d] < w.at[d].extent;
      line = line * w.at[d].extent + e[d];
    }
    const Positions& last = w.at[2];
    const int64_t begin = e[2] < 0 ? divide_up(-e[2], last.stride) : 0;
    const int64_t end = e[2] < last.extent ? divide_up(last.extent - e[2], last.stride) : 0;
    const Lane lane{j, source + (line * last.extent + e[2]) * w.channels, begin, std::min(end, w.to[2].rows)};
    if (inside && lane.begin < lane.end) lanes[count++] = lane;
  }
  return count;
}

// One line of windows, of channels [channel, channel + some).
template <bool kWhole>
struct Line {
  const Lane* lanes;
  int64_t count, width;
  const float* weights;  // [positions, channels]
  int64_t channels, step;
  float* to;
  int64_t to_step, channel, some;

  Vector weight(const Lane& lane) const {
    return load_some<kWhole>(weights + lane.number * channels + channel, some);
  }
  const float* element(const Lane& lane, int64_t i) const { return lane.first + i * step + channel; }

  // `kCount` windows from i on that have all elements.
  template <int kCount>
  void whole(int64_t i) const {
    Vector sums[kCount]{};
    for (const Lane* lane = lanes; lane < lanes + count; ++lane) {
      const Vector w = weight(*lane);
      const float* const x = element(*lane, i);
#pragma GCC unroll 8
      for (int j = 0; j < kCount; ++j)
        sums[j] = multiply_add(load_some<kWhole>(x + j * step, some), w, sums[j]);
    }
#pragma GCC unroll 8
    for (int j = 0; j < kCount; ++j) store_some<kWhole>(to + (i + j) * to_step + channel, sums[j], some);
  }

  // Window i, of which elements are missing.
  void edge(int64_t i) const {
    Vector sum{};
    for (const Lane* lane = lanes; lane < lanes + count; ++lane)
      if (i >= lane->begin && i < lane->end)
        sum = multiply_add(load_some<kWhole>(element(*lane, i), some), weight(*lane), sum);
    store_some<kWhole>(to + i * to_step + channel, sum, some);
  }

  void run(int64_t begin, int64_t end) const {
    int64_t i = 0;
    for (; i < begin; ++i) edge(i);
    for (; i + kSideBySide <= end; i += kSideBySide) whole<kSideBySide>(i);
    if (i < end && end - begin >= kSideBySide) whole<kSideBySide>(end - kSideBySide), i = end;  // some again
    for (; i < end; ++i) whole<1>(i);
    for (; i < width; ++i) edge(i);
  }
};

struct Depthwise {
  Convolution c;
  bool forward;
  std::vector<Windows> parts;
  std::vector<int64_t> positions;  // of each part in the kernel, one after the other

  explicit Depthwise(const Convolution& c) : c(c), forward(c.direction == Convolves::Forward) {
    for (const Windows& w : forward ? std::vector<Windows>{windows_of_x(c)} : windows_of_dy(c)) {
      if (w.rows() == 0) continue;
      parts.push_back(w);
      for (int64_t j = 0; j < w.positions(); ++j) positions.push_back(w.position(j, c.kernel));
    }
  }

  // The weights [channels, kernel] as [positions, channels].
  void pack(float* to) const {
    const float* w = static_cast<const float*>(c.w);
    const int64_t kernel = count_of(c.kernel);
    for (size_t j = 0; j < positions.size(); ++j)
      for (int64_t channel = 0; channel < c.channels; ++channel)
        to[j * c.channels + channel] = w[channel * kernel + positions[j]];
  }

  void run(const float* weights) const {
    for (const Windows& w : parts) {
      if (w.rows() > 0) lines(w, weights);
      weights += w.positions() * c.channels;
    }
  }

  void lines(const Windows& w, const float* weights) const {
    const float* const source = static_cast<const float*>(forward ? c.x : c.y);
    float* const result = static_cast<float*>(c.result());
    const int64_t width = w.to[2].rows, count = w.rows() / width;
    in_parallel(count, grain_rows(width * c.channels * w.positions()), [&](int64_t begin, int64_t end) {
      std::vector<Lane> lanes(static_cast<size_t>(w.positions()) + 1);
      Row row(w, begin * width);
      for (int64_t i = begin; i < end; ++i, row.next_line(w)) {
        const int64_t found = lanes_of(w, row, source, lanes.data());
        line(w, lanes, found, weights, result + row.result(w) * c.channels);
      }
    });
  }

  void line(const Windows& w, const std::vector<Lane>& lanes, int64_t count, const float* weights,
            float* to) const {
    const int64_t width = w.to[2].rows;
    int64_t begin = 0, end = width;  // of the windows that have all
    for (int64_t l = 0; l < count; ++l)
      begin = std::max(begin, lanes[l].begin), end = std::min(end, lanes[l].end);
    begin = std::min(begin, width), end = std::max(begin, end);
    for (int64_t channel = 0; channel < c.channels; channel += kLanes) {
      const int64_t some = std::min<int64_t>(kLanes, c.channels - channel);
      with_lanes(some, [&](auto whole) {
        const Line<whole> line{lanes.data(), count,
                               width,        weights,
                               c.channels,   w.at[2].stride * c.channels,
                               to,           w.to[2].step * c.channels,
                               channel,      some};
        line.run(begin, end);
      });
    }
  }
};

// dw of some positions of a line: windows that have all of them, in two chains each, and the other windows.
template <bool kWhole, int kCount>
void add_positions(const Lane* lanes, const float* dy, int64_t channels, int64_t step, int64_t channel,
                   int64_t some, float* to) {
  int64_t begin = lanes[0].begin, end = lanes[0].end;
  for (int l = 1; l < kCount; ++l) begin = std::max(begin, lanes[l].begin), end = std::min(end, lanes[l].end);
  end = std::max(begin, end);
  const auto gradient = [&](int64_t i) { return load_some<kWhole>(dy + i * channels, some); };
  const auto element = [&](int l, int64_t i) {
    return load_some<kWhole>(lanes[l].first + i * step + channel, some);
  };
  Vector sums[kCount][2]{};
  int64_t i = begin;
  for (; i + 2 <= end; i += 2)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const Vector g = gradient(i + half);
#pragma GCC unroll 4
      for (int l = 0; l < kCount; ++l) sums[l][half] = multiply_add(element(l, i + half), g, sums[l][half]);
    }
#pragma GCC unroll 4
  for (int l = 0; l < kCount; ++l) {
    Vector sum = sums[l][0] + sums[l][1];
    const auto add = [&](int64_t from, int64_t until) {
      for (int64_t at = from; at < until; ++at) sum = multiply_add(element(l, at), gradient(at), sum);
    };
    add(lanes[l].begin, std::min(begin, lanes[l].end));
    add(std::max(i, lanes[l].begin), lanes[l].end);
    float* const all = to + lanes[l].number * channels + channel;
    store_some<kWhole>(all, load_some<kWhole>(all, some) + sum, some);
  }
}

// Lines [begin, end) of windows, to to[positions, channels].
void add_lines(const Convolution& c, const Windows& w, int64_t begin, int64_t end, float* to) {
  const int64_t width = w.to[2].rows, step = w.at[2].stride * c.channels;
  std::vector<Lane> lanes(static_cast<size_t>(w.positions()) + 1);
  std::fill_n(to, w.positions() * c.channels, 0.0f);
  if (begin == end) return;
  Row row(w, begin * width);
  for (int64_t line = begin; line < end; ++line, row.next_line(w)) {
    const int64_t count = lanes_of(w, row, static_cast<const float*>(c.x), lanes.data());
    const float* const dy = static_cast<const float*>(c.y) + line * width * c.channels;
    for (int64_t channel = 0; channel < c.channels; channel += kLanes) {
      const int64_t some = std::min<int64_t>(kLanes, c.channels - channel);
      with_lanes(some, [&](auto whole) {
        int64_t l = 0;
        for (; l + 3 <= count; l += 3)
          add_positions<whole, 3>(&lanes[l], dy + channel, c.channels, step, channel, some, to);
        for (; l < count; ++l)
          add_positions<whole, 1>(&lanes[l], dy + channel, c.channels, step, channel, some, to);
      });
    }
  }
}

int64_t parts_of(const Convolution& c) {
  return std::clamp<int64_t>(c.images * c.out[0] * c.out[1], 1, kMostParts);
}

}  // namespace

size_t convolution_depthwise_workspace(const OpDesc& op) {
  const Convolution c = convolution_of(op);
  const int64_t parts = c.direction == Convolves::WeightGradient ? parts_of(c) : 1;
  return static_cast<size_t>(parts * c.channels * count_of(c.kernel)) * sizeof(float);
}

Status convolution_depthwise(const Convolution& c, const LaunchContext& ctx) {
  const Depthwise depthwise(c);
  float* const weights = static_cast<float*>(ctx.workspace);
  depthwise.pack(weights);
  depthwise.run(weights);
  return Status::ok();
}

Status convolution_depthwise_weights(const Convolution& c, const LaunchContext& ctx) {
  const Windows w = windows_of_x(c);
  const int64_t parts = parts_of(c), lines = w.to[2].rows > 0 ? w.rows() / w.to[2].rows : 0;
  const int64_t size = w.positions() * c.channels;
  float* const sums = static_cast<float*>(ctx.workspace);
  in_parallel(parts, grain_rows(w.rows() * size / parts), [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part)
      add_lines(c, w, lines * part / parts, lines * (part + 1) / parts, sums + part * size);
  });
  float* const dw = static_cast<float*>(c.w);
  for (int64_t channel = 0; channel < c.channels; ++channel)
    for (int64_t j = 0; j < w.positions(); ++j) {
      double sum = 0;
      for (int64_t part = 0; part < parts; ++part) sum += sums[part * size + j * c.channels + channel];
      dw[channel * w.positions() + j] = static_cast<float>(sum);
    }
  return Status::ok();
}

}  // namespace aicf
