#include "kernels/convolution/cudnn_graph.h"

namespace aicf {

using namespace cudnn;

namespace {

constexpr int kCrossCorrelation = 1;

struct Direction {
  Kind kind;
  int attributes;
};
constexpr Direction kDirections[] = {{kConvolutionForward, kForwardAttributes},
                                     {kConvolutionInputGradient, kInputGradientAttributes},
                                     {kConvolutionWeightGradient, kWeightGradientAttributes}};

}  // namespace

Status ConvolutionGraph::describe(Object handle, Descriptor* graph, std::vector<Descriptor>* parts) const {
  Descriptor inputs, weights, outputs, convolution(kConvolution);
  AICF_TRY(cudnn::describe(x, &inputs));
  AICF_TRY(cudnn::describe(w, &weights));
  AICF_TRY(cudnn::describe(y, &outputs));
  const int compute = kF32, mode = kCrossCorrelation;
  AICF_TRY(convolution.set(kComputeType, kDataTypeType, &compute));
  AICF_TRY(convolution.set(kConvolutionMode, kConvolutionModeType, &mode));
  AICF_TRY(convolution.set(kSpatialDims, static_cast<int64_t>(stride.size())));
  AICF_TRY(convolution.set(kStrides, stride));
  AICF_TRY(convolution.set(kDilations, dilation));
  AICF_TRY(convolution.set(kPaddingsBefore, before));
  AICF_TRY(convolution.set(kPaddingsAfter, after));
  AICF_TRY(convolution.finalize("convolution"));

  const auto [kind, first] = kDirections[static_cast<int>(direction)];
  Descriptor operation(kind);
  const float one = 1, zero = 0;
  AICF_TRY(operation.set(first + kAlpha, kFloatType, &one));
  AICF_TRY(operation.set(first + kBeta, kFloatType, &zero));
  AICF_TRY(operation.set(first + kConvolutionOf, convolution));
  AICF_TRY(operation.set(first + kWeights, weights));
  AICF_TRY(operation.set(first + kInput, inputs));
  AICF_TRY(operation.set(first + kOutput, outputs));
  AICF_TRY(operation.finalize("operation"));

  *graph = Descriptor(kOperationGraph);
  AICF_TRY(graph->set(kGraphHandle, kHandleType, &handle));
  AICF_TRY(graph->set(kGraphOperations, operation));
  for (Descriptor* part : {&inputs, &weights, &outputs, &convolution, &operation})
    parts->push_back(std::move(*part));
  return graph->finalize("operation graph");
}

}  // namespace aicf
