// Optimizer steps on the CPU: the rules of step.h over every tensor. Results may be the memory of the old
// values.
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "kernels/common/cpu_chunks.h"
#include "kernels/optim/launch.h"
#include "kernels/optim/step.h"

namespace aicf {
namespace {

using namespace cpu;

double scalar_at(const OpDesc& op, int64_t input, int64_t element = 0) {
  return elements<double>(op.inputs[static_cast<size_t>(input)])[element];
}

// `count` operands from `first` on, as `tensor` reads them.
template <size_t Count>
std::array<double, Count> scalars_of(const OpDesc& op, int64_t first, int64_t count, int64_t tensor) {
  std::array<double, Count> values{};
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i)] = scalar_at(op, first + i, element_of(op, first + i, tensor));
  return values;
}

// The loops are functions of their own, over the compute type: one compilation for f32, f16 and bf16, in
// which the rule is seen to stay the same throughout.
template <class C, bool momentum>
[[gnu::noinline]] void sgd_loop(SgdRule<C> rule, int64_t n, const C* p, const C* g, const C* buf, C* new_p,
                                C* new_buf) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    C weight = p[i], velocity = momentum ? buf[i] : C(0);
    rule(weight, g[i], velocity);
    new_p[i] = weight;
    if (momentum) new_buf[i] = velocity;
  }
}

// The old and the new values of one tensor; vmax is null without amsgrad.
template <class T>
struct AdamTensor {
  const T *p, *g, *m, *v, *vmax;
  T *new_p, *new_m, *new_v, *new_vmax;
};

template <class C, bool amsgrad>
[[gnu::noinline]] void adam_loop(AdamRule<C> rule, int64_t n, AdamTensor<C> t) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    C weight = t.p[i], first = t.m[i], second = t.v[i], largest = amsgrad ? t.vmax[i] : C(0);
    rule(weight, t.g[i], first, second, largest);
    t.new_p[i] = weight;
    t.new_m[i] = first;
    t.new_v[i] = second;
    if (amsgrad) t.new_vmax[i] = largest;
  }
}

template <class T, bool momentum>
void sgd_tensor(const SgdRule<Compute<T>>& rule, int64_t n, const T* p, const T* g, const T* buf, T* new_p,
                T* new_buf) {
  using C = Compute<T>;
  Chunk<T> weights, gradients, buffers, new_weights, new_buffers;
  for_each_chunk<T>(n, [&](int64_t start, int64_t count) {
    sgd_loop<C, momentum>(rule, count, weights.load(p + start, count), gradients.load(g + start, count),
                          momentum ? buffers.load(buf + start, count) : nullptr,
                          new_weights.target(new_p + start),
                          momentum ? new_buffers.target(new_buf + start) : nullptr);
    new_weights.store(new_p + start, count);
    if (momentum) new_buffers.store(new_buf + start, count);
  });
}

template <class T, bool amsgrad>
void adam_tensor(const AdamRule<Compute<T>>& rule, int64_t n, const AdamTensor<T>& t) {
  Chunk<T> p, g, m, v, vmax, new_p, new_m, new_v, new_vmax;
  for_each_chunk<T>(n, [&](int64_t start, int64_t count) {
    AdamTensor<Compute<T>> part{};
    part.p = p.load(t.p + start, count);
    part.g = g.load(t.g + start, count);
    part.m = m.load(t.m + start, count);
    part.v = v.load(t.v + start, count);
    if (amsgrad) part.vmax = vmax.load(t.vmax + start, count);
    part.new_p = new_p.target(t.new_p + start);
    part.new_m = new_m.target(t.new_m + start);
    part.new_v = new_v.target(t.new_v + start);
    if (amsgrad) part.new_vmax = new_vmax.target(t.new_vmax + start);
    adam_loop<Compute<T>, amsgrad>(rule, count, part);
    new_p.store(t.new_p + start, count);
    new_m.store(t.new_m + start, count);
    new_v.store(t.new_v + start, count);
    if (amsgrad) new_vmax.store(t.new_vmax + start, count);
  });
}

template <class T>
void sgd(const OpDesc& op) {
  const SgdLayout layout(op);
  const std::vector<int64_t>& groups = op.attrs.ints(AttrKey::groups);
  const int64_t n = layout.tensors;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t first = layout.first_scalar(groups[i]);
    const auto scalars = scalars_of<4>(op, first, layout.momentum ? 4 : 2, i);
    const double step =
        layout.momentum ? elements<float>(op.inputs[first + 4])[element_of(op, first + 4, i)] : 0;
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
  const std::vector<int64_t>& indices = op.attrs.ints(AttrKey::indices);
  std::optional<AdamRule<Compute<T>>> rule;
  std::array<double, 7> scalars{};
  for (int64_t i = 0; i < n; ++i) {
    const int64_t first = layout.first_scalar(groups[i]);
    // Tensors of one group that are at one step, nearly all, share their rule.
    if (!rule || groups[i] != groups[i - 1] || scalar_at(op, first + 5, indices[i]) != scalars[5] ||
        scalar_at(op, first + 6, indices[i]) != scalars[6]) {
      scalars = scalars_of<7>(op, first, 7, i);
      rule.emplace(scalars.data(), layout.amsgrad, op.attrs.flag(AttrKey::decoupled),
                   op.attrs.flag(AttrKey::maximize));
    }
    const auto in = [&](int64_t state) { return elements<T>(op.inputs[state * n + i]); };
    const auto out = [&](int64_t state) { return op.outputs[state * n + i].ptr<T>(); };
    AdamTensor<T> tensor{in(0), in(1), in(2), in(3), nullptr, out(0), out(1), out(2), nullptr};
    const int64_t size = op.inputs[i].numel();
    if (layout.amsgrad) {
      tensor.vmax = in(4);
      tensor.new_vmax = out(3);
      adam_tensor<T, true>(*rule, size, tensor);
    } else {
      adam_tensor<T, false>(*rule, size, tensor);
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
  const int64_t n = op.inputs[0].shape[0];
  if (op.outputs.size() == 1) {
    for (int64_t i = 0; i < n; ++i) advanced[i] = step[i] + 1;
    return Status::ok();
  }
  const double beta1 = scalar_at(op, 1), beta2 = scalar_at(op, 2);
  const double bc1_pin = scalar_at(op, 3), bc2_pin = scalar_at(op, 4);
  double *bc1_inv = op.outputs[1].ptr<double>(), *bc2_inv = op.outputs[2].ptr<double>();
  // Nearly always all counts are the same: powers are computed once for each run of equal ones.
  float last = std::numeric_limits<float>::quiet_NaN();
  double inverse1 = 0, inverse2 = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float t = step[i] + 1;
    if (t != last) {
      inverse1 = inverse_bias_correction(beta1, t, bc1_pin);
      inverse2 = inverse_bias_correction(beta2, t, bc2_pin);
    }
    advanced[i] = last = t;
    bc1_inv[i] = inverse1;
    bc2_inv[i] = inverse2;
  }
  return Status::ok();
}

Status sgd_step_cpu(const OpDesc& op, const LaunchContext&) {
  return with_float_type(op.outputs[0].dtype, [&](auto tag) { sgd<typename decltype(tag)::type>(op); });
}

Status adam_step_cpu(const OpDesc& op, const LaunchContext&) {
  return with_float_type(op.outputs[0].dtype, [&](auto tag) { adam<typename decltype(tag)::type>(op); });
}

}  // namespace aicf
