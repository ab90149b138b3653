// The attributes of the losses with their defaults resolved, for both devices.
#pragma once
#include <cstdint>

#include "op/variant.h"

namespace aicf {

enum class Reduction : int64_t { Mean, Sum };
inline Names names_of(Reduction) {
  static const std::vector<const char*> names = {"mean", "sum"};
  return names;
}

constexpr Attr<Reduction> kReduction{"reduction", Reduction::Mean};
constexpr Attr<int64_t> kIgnoreIndex{"ignore_index", -100};  // torch's
constexpr Attr<double> kLabelSmoothing{"label_smoothing", 0.0};

inline bool takes_mean(const OpDesc& op) { return op.attrs.get(kReduction) == Reduction::Mean; }

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

// Of cross_entropy and of its gradient.
inline CrossEntropyParams cross_entropy_params(const OpDesc& op) {
  const TensorDesc& logits = op.in("logits");
  CrossEntropyParams p;
  p.rows = logits.shape[0];
  p.classes = logits.shape[1];
  p.ignore_index = op.attrs.get(kIgnoreIndex);
  p.label_smoothing = op.attrs.get(kLabelSmoothing);
  p.mean = takes_mean(op);
  p.wide_targets = op.in("target").dtype == DType::I64;
  return p;
}

}  // namespace aicf
