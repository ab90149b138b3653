// Losses on the CPU. Terms are computed in the compute type, their sum in double; each result is rounded
// once.
#include <cmath>

#include "kernels/common/cpu_parallel.h"
#include "kernels/common/cpu_rows.h"
#include "kernels/loss/launch.h"
#include "kernels/loss/params.h"

namespace aicf {
namespace {

using namespace cpu;

// The class of a row, or one of the two marks.
constexpr int64_t kIgnored = -1;
constexpr int64_t kOutOfRange = -2;

int64_t class_of(const CrossEntropyParams& p, const void* targets, int64_t row) {
  const int64_t target =
      p.wide_targets ? static_cast<const int64_t*>(targets)[row] : static_cast<const int32_t*>(targets)[row];
  if (target == p.ignore_index) return kIgnored;
  return target >= 0 && target < p.classes ? target : kOutOfRange;
}

// The divisor of a mean: the number of rows that are not ignored; 1 for a sum.
double divisor(const CrossEntropyParams& p, const void* targets) {
  if (!p.mean) return 1;
  int64_t count = 0;
  for (int64_t row = 0; row < p.rows; ++row) count += class_of(p, targets, row) != kIgnored;
  return static_cast<double>(count);
}

// log softmax(x)[c] = (x[c] - largest) - log_sum. The two stay apart: large logits would absorb log_sum.
template <class C>
struct LogSoftmax {
  C largest, log_sum;
  C operator()(C x) const { return (x - largest) - log_sum; }
};

template <class T>
LogSoftmax<Compute<T>> log_softmax(const T* x, int64_t n) {
  const RowExponentials<T> row(x, n);
  return {row.largest, static_cast<Compute<T>>(std::log(row.sum))};
}

template <class T>
double row_loss(const CrossEntropyParams& p, const T* x, int64_t target) {
  using C = Compute<T>;
  if (target == kOutOfRange) return kNaN<double>;
  const LogSoftmax<C> log_probability = log_softmax(x, p.classes);
  const double hard = -log_probability(widen(x[target]));
  if (p.label_smoothing == 0) return hard;
  const double all = sum_terms<C>(p.classes, [=](int64_t i) { return -log_probability(widen(x[i])); });
  return (1 - p.label_smoothing) * hard + p.label_smoothing / static_cast<double>(p.classes) * all;
}

// d loss / d x[c] = factor * (softmax(x)[c] - q[c]), q the smoothed target distribution. In an ignored row 0,
// or NaN where softmax is NaN, as in torch.
template <class T>
void row_grad(const CrossEntropyParams& p, const T* x, int64_t target, Compute<T> factor, T* dx) {
  using C = Compute<T>;
  if (target == kOutOfRange) {
    std::fill_n(dx, p.classes, narrow<T>(kNaN<C>));
    return;
  }
  const LogSoftmax<C> log_probability = log_softmax(x, p.classes);
  const C rest = static_cast<C>(p.label_smoothing / static_cast<double>(p.classes));
  const C hit = static_cast<C>(1 - p.label_smoothing + p.label_smoothing / static_cast<double>(p.classes));
  for (int64_t c = 0; c < p.classes; ++c) {
    const C softmax = scalar::exp(log_probability(widen(x[c])));
    const C q = c == target ? hit : rest;
    dx[c] = narrow<T>(target == kIgnored ? C(0) * softmax : factor * (softmax - q));
  }
}

// 2 for a sum, 2 / numel for a mean.
double mse_factor(const OpDesc& op, int64_t n) { return takes_mean(op) ? 2.0 / static_cast<double>(n) : 2.0; }

}  // namespace

Status mse_loss_cpu(const OpDesc& op, const LaunchContext&) {
  const int64_t n = op.in("y").numel();
  return with_float_type(op.outputs[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *y = elements<T>(op.in("y")), *t = elements<T>(op.in("t"));
    double total = sum_many_terms<Compute<T>>(n, [=](int64_t i) {
      const Compute<T> difference = widen(y[i]) - widen(t[i]);
      const Compute<T> square = difference * difference;
      if constexpr (std::is_same_v<T, Half>)
        return widen(narrow<T>(square));  // the sum sees what overflows, as in torch
      else
        return square;
    });
    if (takes_mean(op)) total /= static_cast<double>(n);
    *op.outputs[0].ptr<T>() = narrow_double<T>(total);
  });
}

Status mse_grad_cpu(const OpDesc& op, const LaunchContext&) {
  const int64_t n = op.outputs[0].numel();
  return with_float_type(op.outputs[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    const T *y = elements<T>(op.in("y")), *t = elements<T>(op.in("t"));
    T* dy = op.outputs[0].ptr<T>();
    const C factor = static_cast<C>(mse_factor(op, n) * widen(*elements<T>(op.in("dloss"))));
    in_parallel(n, kGrainElements, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) dy[i] = narrow<T>(factor * (widen(y[i]) - widen(t[i])));
    });
  });
}

Status cross_entropy_cpu(const OpDesc& op, const LaunchContext&) {
  const CrossEntropyParams p = cross_entropy_params(op);
  const void* targets = op.in("target").data;
  return with_float_type(op.outputs[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* logits = elements<T>(op.in("logits"));
    double total = 0;
    for (int64_t row = 0; row < p.rows; ++row) {
      const int64_t target = class_of(p, targets, row);
      if (target != kIgnored) total += row_loss(p, logits + row * p.classes, target);
    }
    *op.outputs[0].ptr<T>() = narrow_double<T>(total / divisor(p, targets));
  });
}

Status cross_entropy_grad_cpu(const OpDesc& op, const LaunchContext&) {
  const CrossEntropyParams p = cross_entropy_params(op);
  const void* targets = op.in("target").data;
  return with_float_type(op.outputs[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* logits = elements<T>(op.in("logits"));
    T* dlogits = op.outputs[0].ptr<T>();
    const auto factor = static_cast<Compute<T>>(widen(*elements<T>(op.in("dloss"))) / divisor(p, targets));
    in_parallel(p.rows, grain_rows(p.classes), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        row_grad(p, logits + row * p.classes, class_of(p, targets, row), factor, dlogits + row * p.classes);
    });
  });
}

}  // namespace aicf
