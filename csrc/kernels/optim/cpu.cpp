// Optimizer steps on the CPU: the rules of step.h over every tensor. Results may be the memory of the old
// values.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/common/cpu_chunks.h"
#include "kernels/common/cpu_parallel.h"
#include "kernels/optim/launch.h"
#include "kernels/optim/step.h"

namespace aicf {
namespace {

using namespace cpu;

double f64_at(const void* scalar) { return *static_cast<const double*>(scalar); }

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

template <class C, bool amsgrad>
[[gnu::noinline]] void adam_loop(AdamRule<C> rule, int64_t n, const C* const* from, C* const* to) {
  const C *p = from[0], *g = from[1], *m = from[2], *v = from[3], *vmax = amsgrad ? from[4] : nullptr;
  C *new_p = to[0], *new_m = to[2], *new_v = to[3], *new_vmax = amsgrad ? to[4] : nullptr;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    C weight = p[i], first = m[i], second = v[i], largest = amsgrad ? vmax[i] : C(0);
    rule(weight, g[i], first, second, largest);
    new_p[i] = weight;
    new_m[i] = first;
    new_v[i] = second;
    if (amsgrad) new_vmax[i] = largest;
  }
}

constexpr int64_t kUnit = 64;  // elements; tensors are divided at multiples of it

// Calls f(TypeTag<G>{}) for the type of a gradient beside parameters of T.
template <class T, class F>
void with_gradient_type(DType gradient, F&& f) {
  if constexpr (std::is_same_v<T, float>) {
    if (gradient == DType::F16) return f(TypeTag<Half>{});
    if (gradient == DType::BF16) return f(TypeTag<BFloat16>{});
  }
  f(TypeTag<T>{});
}

// Writes the new values of a part of p, `count` from `begin` on, to its copy.
void copy_part(const TensorUpdate& update, int64_t begin, int64_t count, const float* values) {
  const auto copy = [&](auto tag) {
    using G = typename decltype(tag)::type;
    G* to = static_cast<G*>(update.copy) + begin;
    for (int64_t i = 0; i < count; ++i) to[i] = narrow<G>(values[i]);
  };
  update.copied == DType::F16 ? copy(TypeTag<Half>{}) : copy(TypeTag<BFloat16>{});
}

// Calls `loop(rule, count, from, to)` for parts of all tensors, in the compute type, side by side where that
// pays; `to` of g is null. All tensors are one loop: with one for each, threads would wait at the end of
// each.
template <class T, size_t STATES, class Rule, class Loop>
void for_each_part(const std::vector<TensorUpdate>& tensors, const std::vector<Rule>& rules, Loop loop) {
  using C = Compute<T>;
  std::vector<int64_t> ends;  // of each tensor, in units from the first one's beginning
  for (const TensorUpdate& update : tensors)
    ends.push_back((ends.empty() ? 0 : ends.back()) + (update.numel + kUnit - 1) / kUnit);
  if (ends.empty()) return;

  // In chunks where g is widened, whatever the others are.
  const auto update_part = [&](size_t index, int64_t begin, int64_t end, auto gradient_tag) {
    using G = typename decltype(gradient_tag)::type;
    const TensorUpdate& update = tensors[index];
    Chunk<T> old_parts[STATES], new_parts[STATES];
    Chunk<G> gradient;
    for_each_chunk<G>(end - begin, [&](int64_t start, int64_t count) {
      const C* from[STATES];
      C* to[STATES] = {};
      const auto target = [&](size_t s) { return static_cast<T*>(update.new_values[s]) + begin + start; };
      for (size_t s = 0; s < STATES; ++s) {
        if (s == 1) {
          from[s] = gradient.load(static_cast<const G*>(update.old_values[s]) + begin + start, count);
        } else {
          from[s] = old_parts[s].load(static_cast<const T*>(update.old_values[s]) + begin + start, count);
          to[s] = new_parts[s].target(target(s));
        }
      }
      loop(rules[index], count, from, to);
      if constexpr (std::is_same_v<T, float>)
        if (update.copy) copy_part(update, begin + start, count, to[0]);
      for (size_t s = 0; s < STATES; ++s)
        if (s != 1) new_parts[s].store(target(s), count);
    });
  };
  in_parallel(ends.back(), kGrainElements / kUnit, [&](int64_t begin, int64_t end) {
    size_t index = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
    for (; begin < end; ++index) {
      const int64_t first = index == 0 ? 0 : ends[index - 1], last = std::min(end, ends[index]);
      const int64_t from = (begin - first) * kUnit;
      const int64_t to = std::min((last - first) * kUnit, tensors[index].numel);
      with_gradient_type<T>(tensors[index].gradient, [&](auto tag) { update_part(index, from, to, tag); });
      begin = last;
    }
  });
}

template <class T, bool momentum>
void sgd(const Updates& updates) {
  using C = Compute<T>;
  constexpr size_t kStates = momentum ? 3 : 2;
  std::vector<SgdRule<C>> rules;
  for (const TensorUpdate& update : updates.tensors) {
    double scalars[4] = {};
    for (size_t i = 0; i < (momentum ? 4 : 2); ++i) scalars[i] = f64_at(update.scalars[i]);
    const double step = momentum ? *static_cast<const float*>(update.scalars[4]) : 0;
    rules.emplace_back(scalars, step, momentum, updates.nesterov, updates.maximize);
  }
  for_each_part<T, kStates>(
      updates.tensors, rules, [](const SgdRule<C>& rule, int64_t n, const C* const* from, C* const* to) {
        sgd_loop<C, momentum>(rule, n, from[0], from[1], momentum ? from[kStates - 1] : nullptr, to[0],
                              momentum ? to[kStates - 1] : nullptr);
      });
}

template <class T, bool amsgrad>
void adam(const Updates& updates) {
  using C = Compute<T>;
  std::vector<AdamRule<C>> rules;
  const TensorUpdate* last = nullptr;
  std::array<double, 7> scalars{};
  for (const TensorUpdate& update : updates.tensors) {
    // Tensors of one group that are at one step, nearly all, share their rule.
    if (last && last->scalars[0] == update.scalars[0] && f64_at(update.scalars[5]) == scalars[5] &&
        f64_at(update.scalars[6]) == scalars[6]) {
      rules.push_back(rules.back());
    } else {
      for (size_t i = 0; i < scalars.size(); ++i) scalars[i] = f64_at(update.scalars[i]);
      rules.emplace_back(scalars.data(), amsgrad, updates.decoupled, updates.maximize);
    }
    last = &update;
  }
  for_each_part<T, amsgrad ? 5 : 4>(
      updates.tensors, rules, [](const AdamRule<C>& rule, int64_t n, const C* const* from, C* const* to) {
        adam_loop<C, amsgrad>(rule, n, from, to);
      });
}

// 1 / (1 - beta^t), or the pinned value.
double inverse_bias_correction(double beta, double t, double pin) {
  return std::isnan(pin) ? 1 / (1 - std::pow(beta, t)) : pin;
}

}  // namespace

Status advance_cpu(const OpDesc& op, const LaunchContext&) {
  const TensorDesc& counts = op.in("step");
  const float* step = elements<float>(counts);
  float* advanced = op.out("step").ptr<float>();
  const int64_t n = counts.shape[0];
  if (!op.has_in("beta1")) {
    for (int64_t i = 0; i < n; ++i) advanced[i] = step[i] + 1;
    return Status::ok();
  }
  const auto scalar = [&](const char* name) { return f64_at(op.in(name).data); };
  const double beta1 = scalar("beta1"), beta2 = scalar("beta2");
  const double bc1_pin = scalar("bc1_pin"), bc2_pin = scalar("bc2_pin");
  double *bc1_inv = op.out("bc1_inv").ptr<double>(), *bc2_inv = op.out("bc2_inv").ptr<double>();
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

Status sgd_step_cpu(const Updates& updates, const LaunchContext&) {
  return with_float_type(updates.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    updates.has_state ? sgd<T, true>(updates) : sgd<T, false>(updates);
  });
}

Status adam_step_cpu(const Updates& updates, const LaunchContext&) {
  return with_float_type(updates.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    updates.has_state ? adam<T, true>(updates) : adam<T, false>(updates);
  });
}

}  // namespace aicf
