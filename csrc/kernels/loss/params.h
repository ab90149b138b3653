// The attributes of the losses with their defaults resolved, for both devices.
#pragma once
#include <cstdint>

#include "runtime/kernel.h"

namespace aicf {

constexpr int64_t kDefaultIgnoreIndex = -100;  // torch's

// loss = mean or sum over the rows whose target is not ignore_index of
//   (1 - label_smoothing) * -log p[target] + label_smoothing / classes * sum over c of -log p[c],   p =
//   softmax(row).
// The mean of no rows is NaN. A target outside [0, classes) gives NaN (loss and gradient row), never a read
// out of bounds.
struct CrossEntropyParams {
  int64_t rows, classes;
  int64_t ignore_index;
  double label_smoothing;
  bool mean;
  bool wide_targets;  // i64, else i32
};

// `logits` is input 0 of cross_entropy and input 1 of cross_entropy_grad; the targets follow it.
inline CrossEntropyParams cross_entropy_params(const OpDesc& op, int logits) {
  const AttrPack& attrs = op.attrs;
  CrossEntropyParams p;
  p.rows = op.inputs[logits].shape[0];
  p.classes = op.inputs[logits].shape[1];
  p.ignore_index =
      attrs.has(AttrKey::ignore_index) ? attrs.integer(AttrKey::ignore_index) : kDefaultIgnoreIndex;
  p.label_smoothing = attrs.number(AttrKey::label_smoothing);
  p.mean = attrs.reduction() == Reduction::Mean;
  p.wide_targets = op.inputs[logits + 1].dtype == DType::I64;
  return p;
}

}  // namespace aicf
