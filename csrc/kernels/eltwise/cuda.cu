// Elementwise kernels: every formula of ops.h, one, two or four elements at a time, and with broadcasting.
//
// A result may be the very same memory as an operand, so pointers are not restrict: each thread reads what
// it overwrites first.
#include "kernels/common/launch.cuh"
#include "kernels/common/numeric.cuh"
#include "kernels/common/strided_offsets.cuh"
#include "kernels/eltwise/launch.h"
#include "kernels/eltwise/ops.h"

namespace aicf {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

// n vectors of W elements.
template <class Op, class T, int W>
__global__ void unary_kernel(T* y, const T* x, int64_t n) {
  dependency_wait();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    const Vec<T, W> in = reinterpret_cast<const Vec<T, W>*>(x)[i];
    Vec<T, W> out;
#pragma unroll
    for (int w = 0; w < W; ++w) out.at[w] = narrow<T>(Op{}(widen(in.at[w])));
    reinterpret_cast<Vec<T, W>*>(y)[i] = out;
  }
}

// n vectors of W elements; both operands have the shape of the result.
template <class Op, class T, int W>
__global__ void binary_kernel(T* z, const T* x, const T* y, int64_t n) {
  dependency_wait();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    const Vec<T, W> left = reinterpret_cast<const Vec<T, W>*>(x)[i];
    const Vec<T, W> right = reinterpret_cast<const Vec<T, W>*>(y)[i];
    Vec<T, W> out;
#pragma unroll
    for (int w = 0; w < W; ++w) out.at[w] = narrow<T>(Op{}(widen(left.at[w]), widen(right.at[w])));
    reinterpret_cast<Vec<T, W>*>(z)[i] = out;
  }
}

// n elements of the result.
template <class Op, class T, class Integer>
__global__ void broadcast_kernel(T* z, const T* x, const T* y, int64_t n,
                                 const __grid_constant__ StridedShape<2> shape) {
  dependency_wait();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    int64_t at[2];
    offsets(shape, static_cast<Integer>(i), at);
    z[i] = narrow<T>(Op{}(widen(x[at[0]]), widen(y[at[1]])));
  }
}

// n vectors of W elements; a row has `columns` vectors, and the bias is one row.
template <class T, int W, class Integer>
__global__ void bias_add_kernel(T* y, const T* x, const T* bias, int64_t n, Integer columns) {
  dependency_wait();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    const Vec<T, W> in = reinterpret_cast<const Vec<T, W>*>(x)[i];
    const Vec<T, W> add = reinterpret_cast<const Vec<T, W>*>(bias)[static_cast<Integer>(i) % columns];
    Vec<T, W> out;
#pragma unroll
    for (int w = 0; w < W; ++w) out.at[w] = narrow<T>(widen(in.at[w]) + widen(add.at[w]));
    reinterpret_cast<Vec<T, W>*>(y)[i] = out;
  }
}

template <class T, int W, class Op>
Status launch_unary(const OpDesc& op, const LaunchContext& ctx) {
  const int64_t n = op.outputs[0].numel() / W;
  return launch(ctx, grid_stride_blocks(n, kThreads), kThreads, 0, unary_kernel<Op, T, W>,
                op.outputs[0].ptr<T>(), op.inputs[0].ptr<const T>(), n);
}

template <class T, int W, class Op>
Status launch_binary(const OpDesc& op, const LaunchContext& ctx) {
  const int64_t n = op.outputs[0].numel() / W;
  return launch(ctx, grid_stride_blocks(n, kThreads), kThreads, 0, binary_kernel<Op, T, W>,
                op.outputs[0].ptr<T>(), op.inputs[0].ptr<const T>(), op.inputs[1].ptr<const T>(), n);
}

template <class T, class Op>
Status launch_broadcast(const OpDesc& op, const LaunchContext& ctx) {
  const TensorDesc &x = op.inputs[0], &y = op.inputs[1], &z = op.outputs[0];
  StridedShape<2> shape;
  for (int d = 0; d < z.rank; ++d)
    shape.append(z.shape[d], {broadcast_stride(x, z.rank, d), broadcast_stride(y, z.rank, d)});
  const int64_t n = z.numel();
  auto* kernel = counts_in_32_bits(n) ? broadcast_kernel<Op, T, uint32_t> : broadcast_kernel<Op, T, uint64_t>;
  return launch(ctx, grid_stride_blocks(n, kThreads), kThreads, 0, kernel, z.ptr<T>(), x.ptr<const T>(),
                y.ptr<const T>(), n, shape);
}

template <class T, int W>
Status launch_bias_add(const OpDesc& op, const LaunchContext& ctx) {
  const TensorDesc& y = op.outputs[0];
  const int64_t n = y.numel() / W, columns = op.inputs[1].numel() / W;
  const dim3 grid = grid_stride_blocks(n, kThreads);
  T* out = y.ptr<T>();
  const T *x = op.inputs[0].ptr<const T>(), *bias = op.inputs[1].ptr<const T>();
  if (counts_in_32_bits(n))
    return launch(ctx, grid, kThreads, 0, bias_add_kernel<T, W, uint32_t>, out, x, bias, n,
                  static_cast<uint32_t>(columns));
  return launch(ctx, grid, kThreads, 0, bias_add_kernel<T, W, uint64_t>, out, x, bias, n,
                static_cast<uint64_t>(columns));
}

// Only one element at a time broadcasts.
template <class T, int W, class Op>
Status launch_pair(const OpDesc& op, const LaunchContext& ctx) {
  if constexpr (W == 1)
    return launch_broadcast<T, Op>(op, ctx);
  else
    return launch_binary<T, W, Op>(op, ctx);
}

// W elements at a time.
template <class T, int W>
Status run(const EltwiseLaunch& launch, const LaunchContext& ctx) {
  const OpDesc& op = launch.desc;
  if (op.outputs[0].numel() == 0) return Status::ok();
  switch (launch.op) {
#define X(number, kind, name, doc, formula) \
  case EltwiseOp::kind:                     \
    return launch_unary<T, W, ops::name>(op, ctx);
    AICF_UNARY_OPS(X)
#undef X
#define X(number, kind, name, doc, formula) \
  case EltwiseOp::kind:                     \
    return launch_pair<T, W, ops::name>(op, ctx);
    AICF_BINARY_OPS(X)
#undef X
#define X(number, kind, name, doc, formula) \
  case EltwiseOp::kind:                     \
    return launch_binary<T, W, ops::name>(op, ctx);
    AICF_BACKWARD_OPS(X)
#undef X
    case EltwiseOp::BiasAdd:
      break;
  }
  return launch_bias_add<T, W>(op, ctx);
}

}  // namespace

Status run_eltwise_cuda(const EltwiseLaunch& launch, const LaunchContext& ctx) {
  return with_float_type(launch.desc.outputs[0].dtype,
                         [&](auto tag) { return run<typename decltype(tag)::type, 1>(launch, ctx); });
}

Status run_eltwise_vec4_cuda(const EltwiseLaunch& launch, const LaunchContext& ctx) {
  return run<float, 4>(launch, ctx);
}

Status run_eltwise_half2_cuda(const EltwiseLaunch& launch, const LaunchContext& ctx) {
  if (launch.desc.outputs[0].dtype == DType::BF16) return run<__nv_bfloat16, 2>(launch, ctx);
  return run<__half, 2>(launch, ctx);
}

}  // namespace aicf
