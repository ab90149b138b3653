// The operands of sgd_step and adam_step by name, and their scalars combined, for both devices. One launch
// updates every tensor.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/eltwise/ops.h"  // AICF_HD
#include "op/variant.h"

namespace aicf {

inline const Attr<std::vector<int64_t>> kGroups{"groups", std::nullopt}, kIndices{"indices", std::nullopt};
inline const Attr<std::vector<int64_t>> kCopied{"copied", std::nullopt};
constexpr Attr<bool> kMaximize{"maximize", false}, kNesterov{"nesterov", false},
    kDecoupled{"decoupled", false};

constexpr size_t kMostStates = 5, kMostScalars = 7;

// One tensor of a launch that updates many: its values and their new ones, which may be the same memory, and
// the scalars of its group.
struct TensorUpdate {
  std::array<const void*, kMostStates> old_values{};  // p, g, and the optimizer's own
  std::array<void*, kMostStates> new_values{};        // that of g is null
  std::array<const void*, kMostScalars> scalars{};
  int64_t numel = 0;
  DType gradient = DType::F32;  // the type of g's elements
  void* copy = nullptr;         // where the new p is written as `copied`, f16 or bf16, as well; may be null
  DType copied = DType::F32;
};

// sgd_step and adam_step, read once. Tensors without elements are left out.
struct Updates {
  DType dtype = DType::F32;
  bool mixed = false;  // some g is of f16 or bf16, or some p is copied; all else is of f32
  std::vector<TensorUpdate> tensors;
  bool has_state = false;  // the optional one: SGD's momentum buffer, Adam's maximum
  bool nesterov = false, decoupled = false, maximize = false;
};
Updates sgd_updates(const OpDesc& op);
Updates adam_updates(const OpDesc& op);

// The update rules on one element, in the compute type C of the tensors; torch's single-tensor formulas. The
// scalars of a group are combined in f64 and rounded once to C. What a flag can do as a factor is one: a
// factor of 1 changes no bit, and a loop with few flags vectorises.
template <class C>
struct SgdRule {
  C sign, lr, weight_decay, momentum, one_minus_dampening;
  bool decays, has_momentum, nesterov;
  bool first;  // no buffer yet: buf = g

  // scalars: lr, weight_decay, and with momentum: momentum, dampening. step1: the advanced step counter of
  // the parameter.
  AICF_HD SgdRule(const double* scalars, double step1, bool has_momentum_, bool nesterov_, bool maximize)
      : sign(maximize ? C(-1) : C(1)),
        lr(static_cast<C>(scalars[0])),
        weight_decay(static_cast<C>(scalars[1])),
        momentum(has_momentum_ ? static_cast<C>(scalars[2]) : C(0)),
        one_minus_dampening(has_momentum_ ? static_cast<C>(1.0 - scalars[3]) : C(0)),
        decays(scalars[1] != 0.0),
        has_momentum(has_momentum_),
        nesterov(nesterov_),
        first(step1 == 1.0) {}

  AICF_HD void operator()(C& p, C g, C& buf) const {
    g = sign * g;
    if (decays) g = g + weight_decay * p;
    if (has_momentum) {
      buf = first ? g : momentum * buf + one_minus_dampening * g;
      g = nesterov ? g + momentum * buf : buf;
    }
    p = p - lr * g;
  }
};

template <class C>
struct AdamRule {
  C sign, weight_decay, decay_factor, beta2, lerp_weight, one_minus_beta2, eps, step_size, bc2_inv_sqrt;
  bool decays_gradient, amsgrad;
  bool lerp_from_m;  // else from g

  // scalars: lr, beta1, beta2, eps, weight_decay, bc1_inv, bc2_inv.
  AICF_HD AdamRule(const double* scalars, bool amsgrad_, bool decoupled, bool maximize)
      : sign(maximize ? C(-1) : C(1)),
        weight_decay(static_cast<C>(scalars[4])),
        decay_factor(decoupled ? static_cast<C>(1.0 - scalars[0] * scalars[4]) : C(1)),
        beta2(static_cast<C>(scalars[2])),
        lerp_weight(static_cast<C>(1.0 - scalars[1])),
        one_minus_beta2(static_cast<C>(1.0 - scalars[2])),
        eps(static_cast<C>(scalars[3])),
        step_size(static_cast<C>(scalars[0] * scalars[5])),
        bc2_inv_sqrt(static_cast<C>(::sqrt(scalars[6]))),
        decays_gradient(!decoupled && scalars[4] != 0.0),
        amsgrad(amsgrad_),
        lerp_from_m(lerp_weight > C(-0.5) && lerp_weight < C(0.5)) {
    if (!lerp_from_m) lerp_weight = lerp_weight - C(1);
  }

  AICF_HD void operator()(C& p, C g, C& m, C& v, C& vmax) const {
    g = sign * g;
    if (decays_gradient) g = g + weight_decay * p;
    p = p * decay_factor;
    // torch.lerp(m, g, 1 - beta1), which starts at the nearer end: else a small g is lost beside a large m.
    m = (lerp_from_m ? m : g) + lerp_weight * (g - m);
    v = beta2 * v + one_minus_beta2 * g * g;
    C second = v;
    if (amsgrad) {
      vmax = v > vmax || v != v ? v : vmax;  // NaN passes from either side, as in torch.maximum
      second = vmax;
    }
    p = p - step_size * m / (scalar::sqrt(second) * bc2_inv_sqrt + eps);
  }
};

}  // namespace aicf
