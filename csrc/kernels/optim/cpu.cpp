// Optimizer steps on the CPU: the rules of step.h over every tensor. Results may be the memory of the old
// values.
#include <array>
#include <cmath>

#include "kernels/common/cpu_types.h"
#include "kernels/optim/launch.h"
#include "kernels/optim/step.h"

namespace aicf {
namespace {

using namespace cpu;

double scalar_at(const OpDesc& op, int64_t input) {
  return *elements<double>(op.inputs[static_cast<size_t>(input)]);
}

template <size_t Count>
std::array<double, Count> scalars_at(const OpDesc& op, int64_t first, int64_t count) {
  std::array<double, Count> values{};
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = scalar_at(op, first + i);
  return values;
}

template <class T, bool momentum>
void sgd_tensor(const SgdRule<Compute<T>>& rule, int64_t n, const T* p, const T* g, const T* buf, T* new_p,
                T* new_buf) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    Compute<T> weight = widen(p[i]), velocity = momentum ? widen(buf[i]) : Compute<T>(0);
    rule(weight, widen(g[i]), velocity);
    new_p[i] = narrow<T>(weight);
    if (momentum) new_buf[i] = narrow<T>(velocity);
  }
}

template <class T, bool amsgrad>
void adam_tensor(const AdamRule<Compute<T>>& rule, int64_t n, const T* p, const T* g, const T* m, const T* v,
                 const T* vmax, T* new_p, T* new_m, T* new_v, T* new_vmax) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    Compute<T> weight = widen(p[i]), first = widen(m[i]), second = widen(v[i]);
    Compute<T> largest = amsgrad ? widen(vmax[i]) : Compute<T>(0);
    rule(weight, widen(g[i]), first, second, largest);
    new_p[i] = narrow<T>(weight);
    new_m[i] = narrow<T>(first);
    new_v[i] = narrow<T>(second);
    if (amsgrad) new_vmax[i] = narrow<T>(largest);
  }
}

template <class T>
void sgd(const OpDesc& op) {
  const SgdLayout layout(op);
  const std::vector<int64_t>& groups = op.attrs.ints(AttrKey::groups);
  const int64_t n = layout.tensors;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t first = layout.first_scalar(groups[i]);
    const auto scalars = scalars_at<4>(op, first, layout.momentum ? 4 : 2);
    const double step = layout.momentum ? *elements<float>(op.inputs[first + 4]) : 0;
    const SgdRule<Compute<T>> rule(scalars.data(), step, layout.momentum, op.attrs.flag(AttrKey::nesterov),
                                   op.attrs.flag(AttrKey::maximize));
    const int64_t size = op.inputs[i].numel();
    const T *p = elements<T>(op.inputs[i]), *g = elements<T>(op.inputs[n + i]);
    T* new_p = op.outputs[i].ptr<T>();
    if (layout.momentum) {
      sgd_tensor<T, true>(rule, size, p, g, elements<T>(op.inputs[2 * n + i]), new_p,
                          op.outputs[n + i].ptr<T>());
    } else {
      sgd_tensor<T, false>(rule, size, p, g, nullptr, new_p, nullptr);
    }
  }
}

template <class T>
void adam(const OpDesc& op) {
  const AdamLayout layout(op);
  const std::vector<int64_t>& groups = op.attrs.ints(AttrKey::groups);
  const int64_t n = layout.tensors;
  for (int64_t i = 0; i < n; ++i) {
    const auto scalars = scalars_at<7>(op, layout.first_scalar(groups[i]), 7);
    const AdamRule<Compute<T>> rule(scalars.data(), layout.amsgrad, op.attrs.flag(AttrKey::decoupled),
                                    op.attrs.flag(AttrKey::maximize));
    const auto in = [&](int64_t state) { return elements<T>(op.inputs[state * n + i]); };
    const auto out = [&](int64_t state) { return op.outputs[state * n + i].ptr<T>(); };
    const int64_t size = op.inputs[i].numel();
    if (layout.amsgrad) {
      adam_tensor<T, true>(rule, size, in(0), in(1), in(2), in(3), in(4), out(0), out(1), out(2), out(3));
    } else {
      adam_tensor<T, false>(rule, size, in(0), in(1), in(2), in(3), nullptr, out(0), out(1), out(2), nullptr);
    }
  }
}

// 1 / (1 - beta^t), or the pinned value.
double inverse_bias_correction(double beta, double t, double pin) {
  return std::isnan(pin) ? 1 / (1 - std::pow(beta, t)) : pin;
}

}  // namespace

Status advance_cpu(const OpDesc& op, const LaunchContext&) {
  const float* step = elements<float>(op.inputs[0]);
  float* advanced = op.outputs[0].ptr<float>();
  for (int64_t i = 0; i < op.inputs[0].shape[0]; ++i) advanced[i] = step[i] + 1;
  if (op.outputs.size() == 1) return Status::ok();
  const double t = advanced[0];
  *op.outputs[1].ptr<double>() = inverse_bias_correction(scalar_at(op, 1), t, scalar_at(op, 3));
  *op.outputs[2].ptr<double>() = inverse_bias_correction(scalar_at(op, 2), t, scalar_at(op, 4));
  return Status::ok();
}

Status sgd_step_cpu(const OpDesc& op, const LaunchContext&) {
  return with_float_type(op.outputs[0].dtype, [&](auto tag) { sgd<typename decltype(tag)::type>(op); });
}

Status adam_step_cpu(const OpDesc& op, const LaunchContext&) {
  return with_float_type(op.outputs[0].dtype, [&](auto tag) { adam<typename decltype(tag)::type>(op); });
}

}  // namespace aicf
