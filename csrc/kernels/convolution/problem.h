// A use of a convolution or of one of its gradients, read once; and what it is, element by element.
#pragma once
#include <optional>

#include "kernels/convolution/cudnn_graph.h"
#include "kernels/eltwise/ops.h"  // AICF_HD
#include "op/variant.h"

namespace aicf {

const Attr<std::vector<int64_t>> kStride{"stride", std::nullopt};
const Attr<std::vector<int64_t>> kDilation{"dilation", std::nullopt};
const Attr<std::vector<int64_t>> kLow{"low", std::nullopt};
const Attr<std::vector<int64_t>> kSize{"size", std::nullopt};
constexpr Attr<int64_t> kGroups{"groups", 1};
constexpr Attr<bool> kChannelsLast{"channels_last", false};

constexpr int kMostSpatial = 3;

// x [images, channels, in], w [outputs, channels / groups, kernel], y [images, outputs, out]. In each spatial
// dimension window o has element o * stride + k * dilation - low at position k. Fewer than three spatial
// dimensions have others of size 1 in front. Forward, y = act(sums + bias[outputs]).
struct Convolution {
  Convolves direction;
  DType dtype;
  bool channels_last, allow_tf32;
  int rank;  // spatial
  int64_t images, channels, outputs, groups;
  int64_t in[kMostSpatial], kernel[kMostSpatial], out[kMostSpatial];
  int64_t stride[kMostSpatial], dilation[kMostSpatial], low[kMostSpatial];
  void *x, *w, *y;
  const void* bias;  // null without
  Act act;

  AICF_HD int64_t group_channels() const { return channels / groups; }
  AICF_HD int64_t group_outputs() const { return outputs / groups; }
  void* result() const {
    return direction == Convolves::Forward ? y : direction == Convolves::InputGradient ? x : w;
  }
  int64_t result_count() const;
  AICF_HD bool has_epilogue() const { return bias || act != Act::None; }  // in a launch
  // Elements after the last one that the last window reaches, below 0 where there are some.
  int64_t high(int d) const {
    return (out[d] - 1) * stride[d] + (kernel[d] - 1) * dilation[d] + 1 - in[d] - low[d];
  }
};

// What the schema accepts.
Convolution convolution_of(const OpDesc& op);
// True if `op` has a bias or an activation; also where operands have no memory.
bool has_epilogue(const OpDesc& op);

struct Place {
  int64_t at[kMostSpatial];
};

AICF_HD Place place_of(int64_t number, const int64_t* size) {
  Place place{};
  for (int d = kMostSpatial - 1; d >= 0; --d) {
    place.at[d] = number % size[d];
    number /= size[d];
  }
  return place;
}
AICF_HD int64_t number_of(const Place& place, const int64_t* size) {
  int64_t number = 0;
  for (int d = 0; d < kMostSpatial; ++d) number = number * size[d] + place.at[d];
  return number;
}
AICF_HD int64_t count_of(const int64_t* size) { return size[0] * size[1] * size[2]; }

inline int64_t Convolution::result_count() const {
  if (direction == Convolves::Forward) return images * outputs * count_of(out);
  if (direction == Convolves::InputGradient) return images * channels * count_of(in);
  return outputs * group_channels() * count_of(kernel);
}

// An image, or an output's weights: `first` of `count` channels each, all of the same size.
AICF_HD int64_t offset_of(bool channels_last, int64_t first, int64_t channel, int64_t count,
                          const Place& place, const int64_t* size) {
  const int64_t number = number_of(place, size), spatial = count_of(size);
  return channels_last ? (first * spatial + number) * count + channel
                       : (first * count + channel) * spatial + number;
}

// The element of window `o` at position `k`; false where there is none.
AICF_HD bool element_of(const Convolution& c, const Place& o, const Place& k, Place* element) {
  for (int d = 0; d < kMostSpatial; ++d) {
    element->at[d] = o.at[d] * c.stride[d] + k.at[d] * c.dilation[d] - c.low[d];
    if (element->at[d] < 0 || element->at[d] >= c.in[d]) return false;
  }
  return true;
}

// The window that has `element` at position `k`; false where there is none.
AICF_HD bool window_of(const Convolution& c, const Place& element, const Place& k, Place* window) {
  for (int d = 0; d < kMostSpatial; ++d) {
    const int64_t from = element.at[d] + c.low[d] - k.at[d] * c.dilation[d];
    if (from < 0 || from % c.stride[d] != 0) return false;
    window->at[d] = from / c.stride[d];
    if (window->at[d] >= c.out[d]) return false;
  }
  return true;
}

// Element `index` of the sums, in C. `Load` widens an element of an operand.
template <class C, class T, class Load>
AICF_HD C sum_of_products(const Convolution& c, int64_t index, Load load) {
  const T *x = static_cast<const T*>(c.x), *w = static_cast<const T*>(c.w), *y = static_cast<const T*>(c.y);
  const bool last = c.channels_last, is_forward = c.direction == Convolves::Forward;
  const bool of_weights = c.direction == Convolves::WeightGradient;
  const int64_t* size = is_forward ? c.out : of_weights ? c.kernel : c.in;
  const int64_t count = is_forward ? c.outputs : of_weights ? c.group_channels() : c.channels;
  const int64_t spatial = count_of(size);
  const int64_t channel = last ? index % count : index / spatial % count;
  const Place here = place_of(last ? index / count % spatial : index % spatial, size);
  const int64_t first = index / (count * spatial);
  const auto at_x = [&](int64_t n, int64_t ch, const Place& p) {
    return load(x[offset_of(last, n, ch, c.channels, p, c.in)]);
  };
  const auto at_w = [&](int64_t o, int64_t ch, const Place& p) {
    return load(w[offset_of(last, o, ch, c.group_channels(), p, c.kernel)]);
  };
  const auto at_y = [&](int64_t n, int64_t o, const Place& p) {
    return load(y[offset_of(last, n, o, c.outputs, p, c.out)]);
  };
  C sum = 0;
  Place other{};
  if (of_weights) {
    const int64_t of_group = first / c.group_outputs() * c.group_channels() + channel;
    for (int64_t n = 0; n < c.images; ++n)
      for (int64_t i = 0; i < count_of(c.out); ++i) {
        const Place window = place_of(i, c.out);
        if (element_of(c, window, here, &other)) sum += at_x(n, of_group, other) * at_y(n, first, window);
      }
    return sum;
  }
  for (int64_t i = 0; i < count_of(c.kernel); ++i) {
    const Place k = place_of(i, c.kernel);
    if (is_forward ? !element_of(c, here, k, &other) : !window_of(c, here, k, &other)) continue;
    if (is_forward) {
      const int64_t from = channel / c.group_outputs() * c.group_channels();
      for (int64_t ch = 0; ch < c.group_channels(); ++ch)
        sum += at_x(first, from + ch, other) * at_w(channel, ch, k);
    } else {
      const int64_t group = channel / c.group_channels(), from = group * c.group_outputs();
      for (int64_t o = from; o < from + c.group_outputs(); ++o)
        sum += at_y(first, o, other) * at_w(o, channel % c.group_channels(), k);
    }
  }
  return sum;
}

// The result that has this sum.
template <class C, class T, class Load>
AICF_HD C with_epilogue(const Convolution& c, int64_t index, C sum, Load load) {
  const int64_t channel = (c.channels_last ? index : index / count_of(c.out)) % c.outputs;
  if (c.bias) sum += load(static_cast<const T*>(c.bias)[channel]);
  return c.act == Act::Relu ? ops::relu{}(sum) : sum;
}

template <class C, class T, class Load>
AICF_HD C element_of_result(const Convolution& c, int64_t index, Load load) {
  const C sum = sum_of_products<C, T>(c, index, load);
  return c.has_epilogue() ? with_epilogue<C, T>(c, index, sum, load) : sum;
}

}  // namespace aicf
