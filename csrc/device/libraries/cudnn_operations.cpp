#include "device/libraries/cudnn_operations.h"

namespace aicf::cudnn {

namespace {

constexpr int64_t kAlignment = 16;
constexpr int kCrossCorrelation = 1;
constexpr int kPropagates = 1;  // else relu makes 0 of NaN

}  // namespace

void Operations::keep(const Status& status) {
  if (status_.is_ok()) status_ = status;
}

Operations::Value Operations::stored(Tensor tensor) {
  Descriptor descriptor;
  keep(describe(tensor, &descriptor));
  tensors_.push_back(std::move(tensor));
  values_.push_back(std::move(descriptor));
  return values_.size() - 1;
}

Operations::Value Operations::number(int64_t id) {
  return stored({id, kF32, {1, 1, 1, 1}, {1, 1, 1, 1}, kAlignment, Tensor::kNumber});
}

Operations::Value Operations::between(DataType type, const Shape& shape, const Shape& strides) {
  Shape steps = strides;
  if (steps.empty()) {
    steps.assign(shape.size(), 1);
    for (size_t d = shape.size() - 1; d > 0; --d) steps[d - 1] = steps[d] * shape[d];
  }
  return stored({next_id_++, type, shape, steps, kAlignment, Tensor::kVirtual});
}

void Operations::add(Kind kind, const std::vector<std::pair<int, Value>>& tensors, int of,
                     Descriptor* parameters, const std::vector<std::pair<int, float>>& numbers) {
  Descriptor operation(kind);
  for (const auto& [attribute, value] : tensors) keep(operation.set(attribute, values_[value]));
  if (parameters) {
    keep(parameters->finalize("parameters of an operation"));
    keep(operation.set(of, *parameters));
    parameters_.push_back(std::move(*parameters));
  }
  for (const auto& [attribute, value] : numbers) keep(operation.set(attribute, kFloatType, &value));
  keep(operation.finalize("operation"));
  operations_.push_back(std::move(operation));
}

void Operations::multiply(Value a, Value b, Value c) {
  Descriptor product(kProduct);
  const int compute = kF32;
  keep(product.set(kProductCompute, kDataTypeType, &compute));
  add(kProductOperation, {{kProductA, a}, {kProductB, b}, {kProductC, c}}, kProductOf, &product);
}

void Operations::convolve(Kind kind, const Windows& windows, Value x, Value w, Value y) {
  Descriptor convolution(kConvolution);
  const int compute = kF32, mode = kCrossCorrelation;
  keep(convolution.set(kComputeType, kDataTypeType, &compute));
  keep(convolution.set(kConvolutionMode, kConvolutionModeType, &mode));
  keep(convolution.set(kSpatialDims, static_cast<int64_t>(windows.stride.size())));
  keep(convolution.set(kStrides, windows.stride));
  keep(convolution.set(kDilations, windows.dilation));
  keep(convolution.set(kPaddingsBefore, windows.before));
  keep(convolution.set(kPaddingsAfter, windows.after));
  const int first = kind == kConvolutionForward         ? kForwardAttributes
                    : kind == kConvolutionInputGradient ? kInputGradientAttributes
                                                        : kWeightGradientAttributes;
  add(kind, {{first + kWeights, w}, {first + kInput, x}, {first + kOutput, y}}, first + kConvolutionOf,
      &convolution, {{first + kAlpha, 1.0f}, {first + kBeta, 0.0f}});
}

void Operations::map(PointwiseMode mode, Value x, Value y, const Value* b, const Value* t, int64_t axis) {
  Descriptor pointwise(kPointwise);
  const int number = mode, compute = tensors_[y].type == kBool ? kBool : kF32;
  keep(pointwise.set(kPointwiseMode, kPointwiseModeType, &number));
  keep(pointwise.set(kPointwiseCompute, kDataTypeType, &compute));
  if (mode == kIndex) keep(pointwise.set(kPointwiseAxis, axis));
  if (mode == kRelu) keep(pointwise.set(kPointwiseNan, kNanType, &kPropagates));
  std::vector<std::pair<int, Value>> tensors{{kPointwiseX, x}, {kPointwiseY, y}};
  if (b) tensors.emplace_back(kPointwiseB, *b);
  if (t) tensors.emplace_back(kPointwiseT, *t);
  add(kPointwiseOperation, tensors, kPointwiseOf, &pointwise);
}

void Operations::reduce(Reducer reducer, Value x, Value y) {
  Descriptor reduction(kReduction);
  const int number = reducer, compute = kF32;
  keep(reduction.set(kReductionCompute, kDataTypeType, &compute));
  keep(reduction.set(kReducer, kReducerType, &number));
  add(kReductionOperation, {{kReductionX, x}, {kReductionY, y}}, kReductionOf, &reduction);
}

void Operations::reshape(Value x, Value y) {
  add(kReshapeOperation, {{kReshapeX, x}, {kReshapeY, y}}, 0, nullptr);
}

Status Operations::finish(Described* out) {
  AICF_TRY(status_);
  std::vector<Object> operations;
  for (const Descriptor& operation : operations_) operations.push_back(operation.object());
  out->graph = Descriptor(kOperationGraph);
  AICF_TRY(out->graph.set(kGraphHandle, kHandleType, &out->handle));
  AICF_TRY(out->graph.set(kGraphOperations, kDescriptorType, operations.data(),
                          static_cast<int64_t>(operations.size())));
  for (std::vector<Descriptor>* parts : {&values_, &parameters_, &operations_})
    for (Descriptor& part : *parts) out->parts.push_back(std::move(part));
  return out->graph.finalize("operation graph");
}

}  // namespace aicf::cudnn
