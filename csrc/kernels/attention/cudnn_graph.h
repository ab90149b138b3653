// Attention, or its gradient, as an operation graph of cuDNN.
#pragma once
#include "device/libraries/cudnn_operations.h"

namespace aicf {

struct AttentionGraph {
  // Ids of tensors in memory and of numbers. The graph of a gradient reads `statistic` for each row of
  // scores, the logarithm of the sum of its exponentials, and writes `delta`, where the caller has memory.
  enum Id : int64_t {
    kQuery = 1,
    kKey,
    kValue,
    kOut,
    kLargest,
    kTotal,
    kStatistic,
    kDout,
    kDelta,
    kDquery,
    kDkey,
    kDvalue,
    kBias,
    kScaleNumber,
    kHiddenNumber,  // the score of a key that is hidden: -infinity
    kOneNumber,
  };

  bool is_grad, causal;
  cudnn::DataType type;
  int64_t batch, heads, key_heads, queries, keys, size, value_size;
  // Strides of [batch, heads, rows, elements] by id, for those that are of 16 bits.
  std::vector<int64_t> strides[kDvalue + 1];
  // What is added to the scores; no dimensions without it.
  cudnn::DataType bias_type;
  std::vector<int64_t> bias_shape, bias_strides;

  // Into out->graph, of out->handle.
  Status describe(cudnn::Described* out) const;
  // Of the tensors and numbers that a launch has.
  std::vector<int64_t> ids() const;
};

}  // namespace aicf
