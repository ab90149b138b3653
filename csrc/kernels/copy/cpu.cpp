// Data movement on the CPU: casts between any two dtypes, and one strided gather behind transpose and
// broadcast.
#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/common/cpu_types.h"
#include "kernels/common/strided_shape.h"
#include "kernels/copy/launch.h"

namespace aicf {
namespace {

using namespace cpu;

// Calls f(TypeTag<T>{}) for any dtype; i1 is one byte, 0 or 1.
template <class F>
void with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::F32:
      return f(TypeTag<float>{});
    case DType::F64:
      return f(TypeTag<double>{});
    case DType::F16:
      return f(TypeTag<Half>{});
    case DType::BF16:
      return f(TypeTag<BFloat16>{});
    case DType::I64:
      return f(TypeTag<int64_t>{});
    case DType::I32:
      return f(TypeTag<int32_t>{});
    case DType::I1:
      return f(TypeTag<bool>{});
  }
}

inline int64_t widen(int64_t x) { return x; }
inline int32_t widen(int32_t x) { return x; }
inline bool widen(bool x) { return x; }
using cpu::widen;

// One element of type From as one of type To: floats round to nearest even once, floats become integers by
// truncation (NaN is 0, what is out of range is the nearest end of it), anything but zero is true.
template <class To, class From>
To cast(From from) {
  const auto x = widen(from);
  using X = std::decay_t<decltype(x)>;
  if constexpr (std::is_same_v<To, bool>) {
    return x != X(0);
  } else if constexpr (!std::is_integral_v<To>) {
    if constexpr (std::is_same_v<X, Compute<To>>) return narrow<To>(x);
    if constexpr (std::is_same_v<To, float>) return static_cast<float>(x);
    return narrow_double<To>(static_cast<double>(x));
  } else if constexpr (std::is_integral_v<X>) {
    return static_cast<To>(x);
  } else {
    constexpr X kLow =
        static_cast<X>(std::numeric_limits<To>::min());  // a power of two: exact, and so is its negation
    if (x != x) return 0;
    if (x < kLow) return std::numeric_limits<To>::min();
    return x >= -kLow ? std::numeric_limits<To>::max() : static_cast<To>(x);
  }
}

template <class To, class From>
void cast_all(To* y, const From* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = cast<To>(x[i]);
}

constexpr int64_t kTile = 32;  // of a transposed plane: both sides of the move stay in the first-level cache

// A plane of the result, rows by columns, written in order; element (i, j) is read at i * row_stride + j *
// column_stride.
template <class T>
void gather_plane(T* y, const T* x, int64_t rows, int64_t columns, int64_t row_stride,
                  int64_t column_stride) {
  if (column_stride == 1) {
    for (int64_t i = 0; i < rows; ++i)
      std::memcpy(y + i * columns, x + i * row_stride, sizeof(T) * static_cast<size_t>(columns));
    return;
  }
  if (column_stride == 0) {
    for (int64_t i = 0; i < rows; ++i) std::fill_n(y + i * columns, columns, x[i * row_stride]);
    return;
  }
  for (int64_t i0 = 0; i0 < rows; i0 += kTile)
    for (int64_t j0 = 0; j0 < columns; j0 += kTile)
      for (int64_t i = i0; i < std::min(rows, i0 + kTile); ++i)
        for (int64_t j = j0; j < std::min(columns, j0 + kTile); ++j)
          y[i * columns + j] = x[i * row_stride + j * column_stride];
}

template <class T>
void gather_dimension(const StridedShape<1>& shape, int d, T*& y, const T* x) {
  const int64_t stride = shape.strides[0][d], n = shape.shape[d];
  if (d == shape.rank - 2) {
    const int64_t columns = shape.shape[d + 1];
    gather_plane(y, x, n, columns, stride, shape.strides[0][d + 1]);
    y += n * columns;
    return;
  }
  for (int64_t i = 0; i < n; ++i) gather_dimension(shape, d + 1, y, x + i * stride);
}

template <class T>
void gather(const StridedShape<1>& shape, T* y, const T* x) {
  if (shape.rank == 0) {
    *y = *x;
  } else if (shape.rank == 1) {
    gather_plane(y, x, 1, shape.shape[0], 0, shape.strides[0][0]);
  } else {
    gather_dimension(shape, 0, y, x);
  }
}

// Bits only, so elements of one size are moved by the same code.
void gather_bits(const StridedShape<1>& shape, const TensorDesc& y, const TensorDesc& x) {
  switch (dtype_size(y.dtype)) {
    case 1:
      return gather(shape, y.ptr<uint8_t>(), elements<uint8_t>(x));
    case 2:
      return gather(shape, y.ptr<uint16_t>(), elements<uint16_t>(x));
    case 4:
      return gather(shape, y.ptr<uint32_t>(), elements<uint32_t>(x));
    default:
      return gather(shape, y.ptr<uint64_t>(), elements<uint64_t>(x));
  }
}

}  // namespace

Status copy_cpu(const OpDesc& op, const LaunchContext&) {
  const TensorDesc &x = op.inputs[0], &y = op.outputs[0];
  const int64_t n = y.numel();
  if (n == 0) return Status::ok();
  if (x.dtype == y.dtype) {
    std::memcpy(y.data, x.data, y.bytes());
    return Status::ok();
  }
  with_type(x.dtype, [&](auto from) {
    with_type(y.dtype, [&](auto to) {
      using From = typename decltype(from)::type;
      using To = typename decltype(to)::type;
      cast_all(y.ptr<To>(), elements<From>(x), n);
    });
  });
  return Status::ok();
}

Status transpose_cpu(const OpDesc& op, const LaunchContext&) {
  const TensorDesc &x = op.inputs[0], &y = op.outputs[0];
  if (y.numel() == 0) return Status::ok();
  const std::vector<int64_t>& perm = op.attrs.get(kPerm);
  StridedShape<1> shape;
  for (int d = 0; d < y.rank; ++d)
    shape.append(y.shape[d], {broadcast_stride(x, x.rank, static_cast<int>(perm[d]))});
  gather_bits(shape, y, x);
  return Status::ok();
}

Status broadcast_cpu(const OpDesc& op, const LaunchContext&) {
  const TensorDesc &x = op.inputs[0], &y = op.outputs[0];
  if (y.numel() == 0) return Status::ok();
  StridedShape<1> shape;
  for (int d = 0; d < y.rank; ++d) shape.append(y.shape[d], {broadcast_stride(x, y.rank, d)});
  gather_bits(shape, y, x);
  return Status::ok();
}

}  // namespace aicf
