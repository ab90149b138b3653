#include "kernels/convolution/cudnn_graph.h"

namespace aicf {

using namespace cudnn;

namespace {

constexpr Kind kKinds[] = {kConvolutionForward, kConvolutionInputGradient, kConvolutionWeightGradient};
constexpr int64_t kFirstVirtual = 100;

}  // namespace

Status ConvolutionGraph::describe(Described* out) const {
  using Value = Operations::Value;
  Operations operations(kFirstVirtual);
  const Value inputs = operations.stored(x), weights = operations.stored(w), result = operations.stored(y);
  const auto before = [&](bool more) { return more ? operations.between(kF32, y.shape, y.strides) : result; };
  Value value = before(bias || relu);
  operations.convolve(kKinds[static_cast<int>(direction)], windows, inputs, weights, value);
  if (bias) {
    std::vector<int64_t> shape(y.shape.size(), 1), strides(y.shape.size(), 1);
    shape[1] = strides[0] = y.shape[1];
    const Value added = operations.stored({kBias, y.type, shape, strides, y.alignment}), sum = before(relu);
    operations.map(kAdd, value, added, sum);
    value = sum;
  }
  if (relu) operations.map(kRelu, value, result);
  return operations.finish(out);
}

std::vector<int64_t> ConvolutionGraph::ids() const {
  std::vector<int64_t> found{kX, kW, kY};
  if (bias) found.push_back(kBias);
  return found;
}

}  // namespace aicf
