#include "kernels/convolution/groups.h"

#include <climits>
#include <numeric>

#include "kernels/common/schema_checks.h"

namespace aicf {
namespace {

constexpr int64_t kProcessors = 132;   // of a large chip
constexpr int64_t kMostProducts = 16;  // of a group, at one position: tensor cores have more of more
constexpr int64_t kSharedBytes = 16 << 10, kMostSharedBytes = 96 << 10;
constexpr int64_t kMostNumber = 1 << 30;
// Blocks of a multiprocessor: whole waves of two and of three, and of weights all at once.
constexpr int64_t kEach = 6, kEachOfWeights = kGroupBlocks;
// Of a line, those that a thread takes one after the other, and where there are few lines.
constexpr int64_t kWindowsOfPart = 64, kFewestWindows = 16;

// In the order of preference, for 16 bits and for 32: up to 16 bytes of the source, or of the result.
constexpr GroupLanes kNarrow[] = {{1, 1, 8}, {1, 1, 4}, {1, 1, 2}, {2, 1, 4},
                                  {1, 2, 4}, {2, 2, 2}, {4, 4, 1}};
constexpr GroupLanes kWide[] = {{1, 1, 4}, {1, 1, 2}, {2, 1, 2}, {1, 2, 2}, {2, 2, 2}, {4, 4, 1}};
constexpr GroupLanes kAny{1, 1, 0};

int64_t divided(int64_t a, int64_t b) { return (a + b - 1) / b; }

// `bytes`: of shared memory for a group.
GroupLanes lanes_of(const Convolution& c, int64_t results, int64_t sources, int64_t bytes) {
  const auto first_of = [&](const auto& rows) {
    for (const GroupLanes& row : rows)
      if (row.results == results && row.sources == sources && c.groups % row.groups == 0 &&
          row.groups * bytes <= kMostSharedBytes)
        return row;
    return kAny;
  };
  return c.dtype == DType::F32 ? first_of(kWide) : first_of(kNarrow);
}

// Of the numbers of one dimension: positions that have elements in common, and elements between them.
struct Common {
  int64_t of_stride, of_dilation, unit;
  Common(int64_t stride, int64_t dilation) {
    const int64_t both = std::gcd(stride, dilation);
    of_stride = stride / both, of_dilation = dilation / both, unit = stride * of_dilation;
  }
};

GroupAxis axis_of(const Convolution& c, int d, bool is_line) {
  const bool back = c.direction == Convolves::InputGradient;
  const int64_t stride = c.stride[d], dilation = c.dilation[d], kernel = c.kernel[d];
  const Common common(stride, dilation);
  GroupAxis axis{};
  const auto put = [&](int64_t first, int64_t count, int64_t shift) {
    axis.chain[axis.chains++] = {static_cast<int>(first), static_cast<int>(count), static_cast<int>(shift)};
  };
  axis.back = back;
  axis.results = static_cast<int>(back ? c.in[d] : c.out[d]);
  axis.sources = static_cast<int>(back ? c.out[d] : c.in[d]);
  axis.scale = static_cast<int>(stride);
  axis.low = static_cast<int>(c.low[d]);
  axis.stride = divider(stride);
  if (back) {  // a chain for each remainder of an element's number, with ascending windows
    axis.apart = static_cast<int>(common.unit);
    axis.step = -static_cast<int>(common.of_stride);
    axis.unit = static_cast<int>(common.of_dilation);
    for (int64_t own = 0; own < stride; ++own) {
      int64_t k = 0;
      while (k < common.of_stride && (own - k * dilation) % stride != 0) ++k;
      const bool is_there = k < common.of_stride && k < kernel;
      const int64_t count = is_there ? divided(kernel - k, common.of_stride) : 0, last = count - 1;
      put(k + last * common.of_stride, count, (own - k * dilation) / stride - last * common.of_dilation);
    }
    return axis;
  }
  axis.apart = static_cast<int>(common.of_dilation);
  axis.step = static_cast<int>(is_line ? common.of_stride : 1);
  axis.unit = static_cast<int>(is_line ? common.unit : dilation);
  for (int64_t k = 0; k < std::min<int64_t>(axis.step, kernel); ++k)
    put(k, divided(kernel - k, axis.step), k * dilation);
  return axis;
}

int64_t positions_of(const Convolution& c) { return count_of(c.kernel); }

}  // namespace

Divider divider(int64_t number) {
  uint32_t log = 0;
  while (int64_t{1} << log < number) ++log;
  Divider d{static_cast<uint32_t>(number), 0, 0};
  if (number > 1) {
    d.factor = static_cast<uint32_t>(((uint64_t{1} << (31 + log)) + number - 1) / number);
    d.shift = log - 1;
  }
  return d;
}

GroupWindows group_windows_of(const OpDesc& op) {
  const Convolution c = convolution_of(op);
  GroupWindows made{};
  made.back = c.direction == Convolves::InputGradient;
  const int64_t outputs = c.group_outputs(), channels = c.group_channels(), positions = positions_of(c);
  made.groups = static_cast<int>(c.groups);
  made.outputs = static_cast<int>(outputs);
  made.channels = static_cast<int>(channels);
  made.results = made.back ? made.channels : made.outputs;
  made.sources = made.back ? made.outputs : made.channels;
  const int64_t group = sizeof(float) * outputs * channels * positions;
  made.lanes = lanes_of(c, made.results, made.sources, group);
  const int64_t unit = std::max(made.lanes.groups, 1);
  const int64_t most = std::max(kSharedBytes / group / unit, int64_t{1}) * unit;
  const int64_t rows = divided(c.groups, most);
  made.block_groups = static_cast<int>(divided(divided(c.groups, rows), unit) * unit);
  made.block_rows = static_cast<int>(divided(c.groups, made.block_groups));
  made.shared_bytes = static_cast<int>(made.block_groups * group);
  const int64_t* size = made.back ? c.in : c.out;
  for (int d = 0; d < kMostSpatial; ++d) {
    made.kernel[d] = static_cast<int>(c.kernel[d]);
    made.axes[d] = axis_of(c, d, d == kMostSpatial - 1);
  }
  const GroupAxis& line = made.axes[kMostSpatial - 1];
  const int64_t vectors =
      made.lanes.groups ? made.block_groups / made.lanes.groups : made.block_groups * made.results;
  const int64_t classes = std::min(line.apart, line.results);
  const int64_t strips = classes * divided(divided(line.results, line.apart), kChain);
  made.vectors = divider(vectors);
  made.strips = divider(strips);
  made.classes = divider(classes);
  made.height = divider(size[1]);
  made.depth = divider(size[0]);
  made.of_output = divider(positions * channels);
  made.of_channel = divider(channels);
  made.of_group = divider(outputs);
  made.items = static_cast<int>(vectors * strips * size[1] * size[0] * c.images);
  const int64_t wanted = std::max<int64_t>(kEach * kProcessors / made.block_rows, 1);
  made.blocks = static_cast<int>(std::min(divided(made.items, kGroupThreads), wanted));
  made.act = c.act;
  made.dtype = c.dtype;
  made.source = made.back ? c.y : c.x;
  made.w = c.w;
  made.bias = c.bias;
  made.result = c.result();
  return made;
}

GroupWeights group_weights_of(const OpDesc& op) {
  const Convolution c = convolution_of(op);
  GroupWeights made{};
  made.groups = static_cast<int>(c.groups);
  made.outputs = static_cast<int>(c.group_outputs());
  made.channels = static_cast<int>(c.group_channels());
  made.lanes = lanes_of(c, made.outputs, made.channels, 0);
  for (int d = 0; d < kMostSpatial; ++d) {
    made.kernel[d] = static_cast<int>(c.kernel[d]);
    made.in[d] = static_cast<int>(c.in[d]);
    made.out[d] = static_cast<int>(c.out[d]);
    made.stride[d] = static_cast<int>(c.stride[d]);
    made.dilation[d] = static_cast<int>(c.dilation[d]);
    made.low[d] = static_cast<int>(c.low[d]);
  }
  constexpr int kLine = kMostSpatial - 1;
  const Common common(c.stride[kLine], c.dilation[kLine]);
  made.step = static_cast<int>(common.of_stride);
  made.unit = static_cast<int>(common.unit);
  made.apart = static_cast<int>(common.of_dilation);
  const int64_t classes = std::min(common.of_stride, c.kernel[kLine]);
  const int64_t strips = classes * divided(divided(c.kernel[kLine], common.of_stride), kChain);
  const GroupLanes& lanes = made.lanes;
  const int64_t vectors = lanes.groups ? c.groups / lanes.groups : c.outputs * made.channels;
  made.sums = kChain * std::max(lanes.groups, 1) * lanes.results * lanes.sources;
  made.items = static_cast<int>(vectors * strips * c.kernel[1] * c.kernel[0]);
  made.item_blocks = static_cast<int>(divided(made.items, kGroupThreads));
  made.block_items = static_cast<int>(divided(made.items, made.item_blocks));
  const int64_t wanted = std::max<int64_t>(kEachOfWeights * kProcessors / made.item_blocks, 1);
  const int64_t beside = kGroupThreads / made.block_items, rows = c.images * c.out[0] * c.out[1];
  const int64_t in_line = divided(c.out[kLine], common.of_dilation);
  for (const int64_t part : {kWindowsOfPart, kFewestWindows}) {
    made.part = static_cast<int>(part);
    made.parts = divider(divided(in_line, part));
    made.lines = static_cast<int>(rows * made.parts.number);
    if (made.lines >= wanted * beside) break;
  }
  const int64_t lines = made.lines;
  made.beside = static_cast<int>(std::min(beside, lines));
  const int64_t fewest = divided(kFewestWindows, std::min<int64_t>(in_line, made.part)) * made.beside;
  const int64_t blocks = std::min(divided(lines, fewest), wanted);
  made.block_lines = static_cast<int>(divided(lines, blocks));
  made.blocks = static_cast<int>(divided(lines, made.block_lines));
  made.vectors = divider(vectors);
  made.strips = divider(strips);
  made.classes = divider(classes);
  made.height = divider(c.kernel[1]);
  made.line_height = divider(c.out[1]);
  made.line_depth = divider(c.out[0]);
  made.pairs = divider(made.channels);
  made.x = c.x;
  made.dy = c.y;
  made.dw = c.w;
  made.dtype = c.dtype;
  return made;
}

size_t group_weights_workspace(const OpDesc& op) { return group_weights_of(op).partial_bytes(); }

Status supports_groups(const OpDesc& op) {
  constexpr uint32_t kAlignment = 16;
  const Convolution c = convolution_of(op);
  if (!c.channels_last) return decline("needs channels_last");
  const int64_t products = c.group_channels() * c.group_outputs();
  if (c.groups == 1 || products > kMostProducts)
    return decline("needs groups of at most ", kMostProducts, " channels times outputs, got ", c.groups,
                   " of ", products);
  const int64_t bytes = sizeof(float) * products * positions_of(c);
  if (bytes > kMostSharedBytes)
    return decline("needs ", kMostSharedBytes, " bytes at most for the weights of a group in f32, got ",
                   bytes);
  for (const TensorDesc* t : {&op.inputs[0], &op.inputs[1], &op.outputs[0]}) {
    if (t->numel() == 0) return decline("needs elements, got ", t->str());
    if (t->numel() > INT_MAX) return decline("needs fewer than 2^31 elements, got ", t->str());
  }
  for (int d = 0; d < kMostSpatial; ++d) {
    if (c.stride[d] > kMostStride)
      return decline("needs strides of at most ", kMostStride, ", got ", c.stride[d]);
    for (const int64_t reach : {c.low[d], c.dilation[d], c.dilation[d] * c.kernel[d], c.out[d] * c.stride[d]})
      if (reach > kMostNumber) return decline("needs windows of at most 2^30 elements, got ", reach);
  }
  AICF_TRY(needs_dense(op));
  return needs_alignment(op, kAlignment);
}

}  // namespace aicf
