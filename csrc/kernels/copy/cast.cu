// copy from one dtype to another.
#include "kernels/common/launch.cuh"
#include "kernels/common/strided_offsets.cuh"
#include "kernels/copy/cast.cuh"
#include "kernels/copy/launch.h"
#include "kernels/copy/parts.cuh"

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
  if constexpr (!kIsInteger<To> && !kIsInteger<From>)
    if (Part part; is_narrow(m, &part)) return move_parts<To, From>({part}, ctx);
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
