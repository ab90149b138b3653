// Optimizer steps on CUDA: the rules of step.h over the tables of update.cuh, and the step counter.
#include <new>

#include "kernels/optim/launch.h"
#include "kernels/optim/step.h"
#include "kernels/optim/update.cuh"

namespace aicf {
namespace {

using namespace cuda;

__device__ __forceinline__ double f64_at(const void* p) { return *static_cast<const double*>(p); }

template <bool MOMENTUM>
struct Sgd {
  static constexpr int kStates = MOMENTUM ? 3 : 2, kScalars = MOMENTUM ? 5 : 2;
  template <class C>
  using Rule = SgdRule<C>;
  bool nesterov, maximize;

  template <class C>
  __device__ __forceinline__ SgdRule<C> make_rule(const void* const (&scalars)[kScalars]) const {
    double values[4] = {};
    double step = 0;
#pragma unroll
    for (int i = 0; i < (MOMENTUM ? 4 : 2); ++i) values[i] = f64_at(scalars[i]);
    if constexpr (MOMENTUM) step = *static_cast<const float*>(scalars[4]);
    return SgdRule<C>(values, step, MOMENTUM, nesterov, maximize);
  }
  template <class C>
  static __device__ __forceinline__ void apply(const SgdRule<C>& rule, C (&values)[kStates]) {
    C none = 0;
    rule(values[0], values[1], MOMENTUM ? values[kStates - 1] : none);
  }
};

template <bool AMSGRAD>
struct Adam {
  static constexpr int kStates = AMSGRAD ? 5 : 4, kScalars = 7;
  template <class C>
  using Rule = AdamRule<C>;
  bool decoupled, maximize;

  template <class C>
  __device__ __forceinline__ AdamRule<C> make_rule(const void* const (&scalars)[kScalars]) const {
    double values[kScalars];
#pragma unroll
    for (int i = 0; i < kScalars; ++i) values[i] = f64_at(scalars[i]);
    return AdamRule<C>(values, AMSGRAD, decoupled, maximize);
  }
  template <class C>
  static __device__ __forceinline__ void apply(const AdamRule<C>& rule, C (&values)[kStates]) {
    C none = 0;
    rule(values[0], values[1], values[2], values[3], AMSGRAD ? values[kStates - 1] : none);
  }
};

template <class Method>
Status update(const Updates& updates, const LaunchContext& ctx, const Method& method) {
  const auto tensors = update_tensors<Method>(updates);
  if (updates.mixed) return update_all<Method, float, true>(ctx, method, tensors);
  return with_float_type(updates.dtype, [&](auto tag) {
    return update_all<Method, typename decltype(tag)::type, false>(ctx, method, tensors);
  });
}

// The operands of advance; the pointers after `advanced` are null where it only counts.
struct AdvanceArguments {
  const float* step;
  float* advanced;  // may be the same memory
  int64_t count;
  const double *beta1, *beta2, *bc1_pin, *bc2_pin;
  double *bc1_inv, *bc2_inv;  // of `count` elements too
};

__device__ __forceinline__ double inverse_bias_correction(double beta, double t, double pin) {
  return isnan(pin) ? 1 / (1 - pow(beta, t)) : pin;
}

constexpr int kAdvanced = 64;  // elements of a block

// Two threads an element, one for each power. They are computed while the predicate is under way.
__global__ void __launch_bounds__(2 * kAdvanced)
    advance_kernel(AdvanceArguments a, const int64_t* predicate) {
  dependency_wait();
  const bool first = threadIdx.x < kAdvanced;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kAdvanced + threadIdx.x % kAdvanced;
  const bool is_there = i < a.count;
  const bool is_skipped = skipped(predicate);
  const float t = is_there ? a.step[i] + 1.0f : 0.0f;
  double* const to = first ? a.bc1_inv : a.bc2_inv;
  double inverse = 0;
  if (is_there && to)
    inverse = first ? inverse_bias_correction(*a.beta1, t, *a.bc1_pin)
                    : inverse_bias_correction(*a.beta2, t, *a.bc2_pin);
  __syncthreads();  // both have read the step
  if (is_skipped || !is_there) return;
  if (first) a.advanced[i] = t;
  if (to) to[i] = inverse;
}

}  // namespace

Status advance_cuda(const OpDesc& op, const LaunchContext& ctx) {
  AdvanceArguments a{};
  a.step = op.in("step").ptr<const float>();
  a.advanced = op.out("step").ptr<float>();
  a.count = op.in("step").numel();
  if (op.has_in("beta1")) {
    const auto scalar = [&](const char* name) { return op.in(name).ptr<const double>(); };
    a.beta1 = scalar("beta1");
    a.beta2 = scalar("beta2");
    a.bc1_pin = scalar("bc1_pin");
    a.bc2_pin = scalar("bc2_pin");
    a.bc1_inv = op.out("bc1_inv").ptr<double>();
    a.bc2_inv = op.out("bc2_inv").ptr<double>();
  }
  return launch(ctx, static_cast<unsigned>(ceil_div<int64_t>(a.count, kAdvanced)), 2 * kAdvanced, 0,
                advance_kernel, a, ctx.predicate);
}

Status sgd_step_cuda(const Updates& u, const LaunchContext& ctx) {
  return u.has_state ? update(u, ctx, Sgd<true>{u.nesterov, u.maximize})
                     : update(u, ctx, Sgd<false>{u.nesterov, u.maximize});
}

Status adam_step_cuda(const Updates& u, const LaunchContext& ctx) {
  return u.has_state ? update(u, ctx, Adam<true>{u.decoupled, u.maximize})
                     : update(u, ctx, Adam<false>{u.decoupled, u.maximize});
}

}  // namespace aicf
