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

template <class Method, class Layout>
Status update(const OpDesc& op, const LaunchContext& ctx, const Method& method, const Layout& layout) {
  const auto tensors = update_tensors<Method>(op, layout);
  return with_float_type(op.outputs[0].dtype, [&](auto tag) {
    return update_all<Method, typename decltype(tag)::type>(ctx, method, tensors);
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

__global__ void advance_kernel(AdvanceArguments a, const int64_t* unless) {
  if (skipped(unless)) return;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= a.count) return;
  const float t = a.step[i] + 1.0f;
  a.advanced[i] = t;
  if (!a.bc1_inv) return;
  a.bc1_inv[i] = inverse_bias_correction(*a.beta1, t, *a.bc1_pin);
  a.bc2_inv[i] = inverse_bias_correction(*a.beta2, t, *a.bc2_pin);
}

}  // namespace

Status advance_cuda(const OpDesc& op, const LaunchContext& ctx) {
  AdvanceArguments a{};
  a.step = op.inputs[0].ptr<const float>();
  a.advanced = op.outputs[0].ptr<float>();
  a.count = op.inputs[0].numel();
  if (op.outputs.size() > 1) {
    const auto scalar = [&](size_t i) { return op.inputs[i].ptr<const double>(); };
    a.beta1 = scalar(1);
    a.beta2 = scalar(2);
    a.bc1_pin = scalar(3);
    a.bc2_pin = scalar(4);
    a.bc1_inv = op.outputs[1].ptr<double>();
    a.bc2_inv = op.outputs[2].ptr<double>();
  }
  constexpr int64_t kThreads = 128;
  return launch(ctx, static_cast<unsigned>(ceil_div(a.count, kThreads)), static_cast<int>(kThreads), 0,
                advance_kernel, a, ctx.unless);
}

Status sgd_step_cuda(const OpDesc& op, const LaunchContext& ctx) {
  const SgdLayout layout(op);
  const bool nesterov = op.attrs.flag(AttrKey::nesterov), maximize = op.attrs.flag(AttrKey::maximize);
  return layout.momentum ? update(op, ctx, Sgd<true>{nesterov, maximize}, layout)
                         : update(op, ctx, Sgd<false>{nesterov, maximize}, layout);
}

Status adam_step_cuda(const OpDesc& op, const LaunchContext& ctx) {
  const AdamLayout layout(op);
  const bool decoupled = op.attrs.flag(AttrKey::decoupled), maximize = op.attrs.flag(AttrKey::maximize);
  return layout.amsgrad ? update(op, ctx, Adam<true>{decoupled, maximize}, layout)
                        : update(op, ctx, Adam<false>{decoupled, maximize}, layout);
}

}  // namespace aicf
