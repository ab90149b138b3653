// A convolution, or one of its gradients, as an operation graph of cuDNN.
#pragma once
#include <vector>

#include "device/libraries/cudnn.h"

namespace aicf {

enum class Convolves : int { Forward, InputGradient, WeightGradient };

struct ConvolutionGraph {
  Convolves direction;
  cudnn::Tensor x, w, y;  // their gradients where the direction says so
  std::vector<int64_t> stride, dilation, before, after;

  // On the handle's device. What `graph` is made of must live as long.
  Status describe(cudnn::Object handle, cudnn::Descriptor* graph,
                  std::vector<cudnn::Descriptor>* parts) const;
};

}  // namespace aicf
