// The operands of sgd_step and adam_step by name, and their scalars combined, for both devices. One launch
// updates every tensor.
#pragma once
#include <cmath>
#include <cstdint>

#include "kernels/eltwise/ops.h"  // AICF_HD
#include "runtime/kernel.h"

namespace aicf {

// Where each operand lies in op.inputs and op.outputs of a launch over n tensors in g groups. Of what a group
// counts for each of its parameters (step, bc1_inv, bc2_inv), tensor i reads element indices[i].
// Inputs:  p[n], g[n], [buf[n]],            then for each group: lr, weight_decay, [momentum, dampening,
// step[..]]. Outputs: p[n], [buf[n]].
struct SgdLayout {
  int64_t tensors, groups;
  bool momentum;
  explicit SgdLayout(const OpDesc& op);
  int64_t states() const { return momentum ? 3 : 2; }   // p, g, [buf]
  int64_t scalars() const { return momentum ? 5 : 2; }  // per group
  int64_t inputs() const { return states() * tensors + scalars() * groups; }
  int64_t outputs() const { return (states() - 1) * tensors; }
  int64_t first_scalar(int64_t group) const { return states() * tensors + scalars() * group; }
};

// Inputs:  p[n], g[n], m[n], v[n], [vmax[n]], then for each group: lr, beta1, beta2, eps, weight_decay,
// bc1_inv[..], bc2_inv[..]. Outputs: p[n], m[n], v[n], [vmax[n]].
struct AdamLayout {
  int64_t tensors, groups;
  bool amsgrad;
  explicit AdamLayout(const OpDesc& op);
  int64_t states() const { return amsgrad ? 5 : 4; }
  int64_t scalars() const { return 7; }
  int64_t inputs() const { return states() * tensors + scalars() * groups; }
  int64_t outputs() const { return (states() - 1) * tensors; }
  int64_t first_scalar(int64_t group) const { return states() * tensors + scalars() * group; }
};

// Number of groups: the largest group index plus one; 0 without tensors.
int64_t group_count(const OpDesc& op);

// The element of a group's operand that `tensor` reads: the only one of a scalar, its own of a vector.
inline int64_t element_of(const OpDesc& op, int64_t input, int64_t tensor) {
  if (op.inputs[static_cast<size_t>(input)].rank == 0) return 0;
  return op.attrs.ints(AttrKey::indices)[static_cast<size_t>(tensor)];
}

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
