// Elementwise kernels on the CPU: every formula of ops.h over contiguous operands; binary ones over any
// strides, and with broadcasting.
//
// A result may be the very same memory as an operand. Iterations touch one element each, so they are
// independent all the same, which `ivdep` tells the compiler.
#include "kernels/common/cpu_chunks.h"
#include "kernels/common/cpu_parallel.h"
#include "kernels/common/strided_shape.h"
#include "kernels/eltwise/launch.h"
#include "kernels/eltwise/ops.h"

namespace aicf {
namespace {

using namespace cpu;

template <class Op, class T>
void unary(T* y, const T* x, int64_t n) {
  Chunk<T> in, out;
  for_each_chunk<T>(n, [&](int64_t start, int64_t count) {
    const Compute<T>* from = in.load(x + start, count);
    Compute<T>* to = out.target(y + start);
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) to[i] = Op{}(from[i]);
    out.store(y + start, count);
  });
}

// An operand that does not move is one element for all.
template <class Op, bool x_moves, bool y_moves, class T>
void binary(T* z, const T* x, const T* y, int64_t n) {
  Chunk<T> left, right, out;
  for_each_chunk<T>(n, [&](int64_t start, int64_t count) {
    const Compute<T>* a = left.load(x_moves ? x + start : x, x_moves ? count : 1);
    const Compute<T>* b = right.load(y_moves ? y + start : y, y_moves ? count : 1);
    Compute<T>* to = out.target(z + start);
    const Compute<T> first_a = *a, first_b = *b;
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) to[i] = Op{}(x_moves ? a[i] : first_a, y_moves ? b[i] : first_b);
    out.store(z + start, count);
  });
}

// The innermost dimension of a result whose operands have strides of their own. Of contiguous operands, one
// has a stride of 1 along it and the other of 0 or 1.
template <class Op, class T>
void binary_row(T* z, const T* x, int64_t x_stride, const T* y, int64_t y_stride, int64_t n) {
  if (x_stride == 1 && y_stride == 1) return binary<Op, true, true>(z, x, y, n);
  if (x_stride == 1 && y_stride == 0) return binary<Op, true, false>(z, x, y, n);
  if (x_stride == 0 && y_stride == 1) return binary<Op, false, true>(z, x, y, n);
  for (int64_t i = 0; i < n; ++i) z[i] = narrow<T>(Op{}(widen(x[i * x_stride]), widen(y[i * y_stride])));
}

template <class Op, class T>
void binary_dimension(const StridedShape<2>& shape, int d, T*& z, const T* x, const T* y) {
  const int64_t x_stride = shape.strides[0][d], y_stride = shape.strides[1][d], n = shape.shape[d];
  if (d == shape.rank - 1) {
    binary_row<Op>(z, x, x_stride, y, y_stride, n);
    z += n;
    return;
  }
  for (int64_t i = 0; i < n; ++i) binary_dimension<Op>(shape, d + 1, z, x + i * x_stride, y + i * y_stride);
}

template <class Op, class T>
void binary_broadcast(const OpDesc& op) {
  const TensorDesc &x = op.inputs[0], &y = op.inputs[1], &z = op.outputs[0];
  if (z.numel() == 0) return;
  StridedShape<2> shape;
  for (int d = 0; d < z.rank; ++d)
    shape.append(z.shape[d], {broadcast_stride(x, z.rank, d), broadcast_stride(y, z.rank, d)});
  if (shape.rank == 0) return binary<Op, true, true>(z.ptr<T>(), elements<T>(x), elements<T>(y), 1);
  const int64_t size = shape.shape[0], inner = z.numel() / size;
  in_parallel(size, grain_rows(inner), [&](int64_t begin, int64_t end) {
    StridedShape<2> part = shape;
    part.shape[0] = end - begin;
    T* out = z.ptr<T>() + begin * inner;
    binary_dimension<Op>(part, 0, out, elements<T>(x) + begin * shape.strides[0][0],
                         elements<T>(y) + begin * shape.strides[1][0]);
  });
}

template <class Op>
Status run_unary(const OpDesc& op) {
  return with_float_type(op.outputs[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* y = op.outputs[0].ptr<T>();
    const T* x = elements<T>(op.inputs[0]);
    in_parallel(op.outputs[0].numel(), kGrainElements,
                [&](int64_t begin, int64_t end) { unary<Op>(y + begin, x + begin, end - begin); });
  });
}

template <class Op>
Status run_same_shape(const OpDesc& op) {
  return with_float_type(op.outputs[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* z = op.outputs[0].ptr<T>();
    const T *x = elements<T>(op.inputs[0]), *y = elements<T>(op.inputs[1]);
    in_parallel(op.outputs[0].numel(), kGrainElements, [&](int64_t begin, int64_t end) {
      binary<Op, true, true>(z + begin, x + begin, y + begin, end - begin);
    });
  });
}

template <class Op>
Status run_binary(const OpDesc& op) {
  const TensorDesc &x = op.inputs[0], &y = op.inputs[1];
  if (x.same_shape(y) && x.contiguous() && y.contiguous()) return run_same_shape<Op>(op);
  return with_float_type(op.outputs[0].dtype,
                         [&](auto tag) { binary_broadcast<Op, typename decltype(tag)::type>(op); });
}

}  // namespace

Status run_eltwise_cpu(const EltwiseLaunch& launch, const LaunchContext&) {
  const OpDesc& op = launch.desc;
  switch (launch.op) {
#define X(number, kind, name, doc, formula) \
  case EltwiseOp::kind:                     \
    return run_unary<ops::name>(op);
    AICF_UNARY_OPS(X)
#undef X
#define X(number, kind, name, doc, formula) \
  case EltwiseOp::kind:                     \
    return run_binary<ops::name>(op);
    AICF_BINARY_OPS(X)
#undef X
#define X(number, kind, name, doc, formula) \
  case EltwiseOp::kind:                     \
    return run_same_shape<ops::name>(op);
    AICF_BACKWARD_OPS(X)
#undef X
    case EltwiseOp::BiasAdd:  // a bias is a row that broadcasts over the leading dimensions
      break;
  }
  return with_float_type(op.outputs[0].dtype,
                         [&](auto tag) { binary_broadcast<ops::add, typename decltype(tag)::type>(op); });
}

}  // namespace aicf
