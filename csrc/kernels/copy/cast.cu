// copy from one dtype to another.
#include <limits>
#include <type_traits>

#include "kernels/common/launch.cuh"
#include "kernels/common/numeric.cuh"
#include "kernels/common/strided_offsets.cuh"
#include "kernels/copy/launch.h"

namespace aicf {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

// Calls f(TypeTag<T>{}) for any dtype; i1 is one byte, 0 or 1.
template <class F>
Status with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::I64:
      return f(TypeTag<int64_t>{});
    case DType::I32:
      return f(TypeTag<int32_t>{});
    case DType::I1:
      return f(TypeTag<bool>{});
    default:
      return with_float_type(dtype, f);
  }
}

template <class T>
constexpr T kLeast = std::numeric_limits<T>::min();
template <class T>
constexpr T kGreatest = std::numeric_limits<T>::max();
template <class T>
constexpr bool kIsInteger = std::is_integral_v<T>;

template <class T>
__device__ __forceinline__ auto number(T x) {
  if constexpr (kIsInteger<T>)
    return x;
  else
    return widen(x);
}

// One rounding from double; through float there would be two.
__device__ __forceinline__ void round_to(double x, __half* y) { *y = __double2half(x); }
__device__ __forceinline__ void round_to(double x, __nv_bfloat16* y) { *y = __double2bfloat16(x); }

// Floats round to nearest even once, floats become integers by truncation (NaN is 0, what is out of range
// is the nearest end of it), anything but zero is true.
template <class To, class From>
__device__ __forceinline__ To cast(From from) {
  const auto x = number(from);
  using X = std::decay_t<decltype(x)>;
  if constexpr (std::is_same_v<To, bool>) {
    return x != X(0);
  } else if constexpr (kIsInteger<To> && kIsInteger<X>) {
    return static_cast<To>(x);
  } else if constexpr (kIsInteger<To>) {
    constexpr X kLow = static_cast<X>(kLeast<To>);  // a power of two: exact, and so is its negation
    if (x != x) return 0;
    if (x < kLow) return kLeast<To>;
    return x >= -kLow ? kGreatest<To> : static_cast<To>(x);
  } else if constexpr (std::is_same_v<X, Compute<To>>) {
    return narrow<To>(x);
  } else if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(x);
  } else {
    To y;
    round_to(static_cast<double>(x), &y);
    return y;
  }
}

template <class To, class From>
__global__ void cast_kernel(To* y, const From* x, int64_t n, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step)
    y[i] = cast<To>(x[i]);
}

template <class To, class From>
__global__ void cast_strided_kernel(To* y, const From* x, int64_t n,
                                    const __grid_constant__ StridedShape<2> shape, bool narrow_count,
                                    const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    int64_t at[2];
    if (narrow_count)  // the same for all threads
      offsets(shape, static_cast<uint32_t>(i), at);
    else
      offsets(shape, static_cast<uint64_t>(i), at);
    y[at[0]] = cast<To>(x[at[1]]);
  }
}

template <class To, class From>
Status run(const Move& m, const LaunchContext& ctx) {
  To* y = static_cast<To*>(m.y);
  const From* x = static_cast<const From*>(m.x);
  const unsigned blocks = grid_stride_blocks(m.count, kThreads);
  if (m.rows() && m.shape.rank <= 1)
    return launch(ctx, blocks, kThreads, 0, cast_kernel<To, From>, y, x, m.count, ctx.predicate);
  return launch(ctx, blocks, kThreads, 0, cast_strided_kernel<To, From>, y, x, m.count, m.shape,
                counts_in_32_bits(m.count), ctx.predicate);
}

}  // namespace

Status cast_cuda(const Move& m, const LaunchContext& ctx) {
  return with_type(m.from, [&](auto from) {
    return with_type(m.to, [&](auto to) {
      using From = typename decltype(from)::type;
      using To = typename decltype(to)::type;
      if constexpr (std::is_same_v<To, From>)
        return Status::ok();  // move_cuda moves the bits
      else
        return run<To, From>(m, ctx);
    });
  });
}

}  // namespace aicf
