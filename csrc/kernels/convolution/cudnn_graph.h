// A convolution, or one of its gradients, as an operation graph of cuDNN.
#pragma once
#include "device/libraries/cudnn_operations.h"

namespace aicf {

enum class Convolves : int { Forward, InputGradient, WeightGradient };

struct ConvolutionGraph {
  enum Id : int64_t { kX = 1, kW, kY, kBias };

  Convolves direction;
  cudnn::Tensor x, w, y;  // their gradients where the direction says so
  cudnn::Windows windows;
  bool bias, relu;  // of y, forward

  // Into out->graph, of out->handle.
  Status describe(cudnn::Described* out) const;
  // Of the tensors that a launch has, with their pointers.
  std::vector<int64_t> ids() const;
};

}  // namespace aicf
