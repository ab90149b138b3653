// scatter_rows of the last source on CUDA: the largest number of a source that names a row is the same in any
// order, so atomics find it; then each row is copied from that source, or from x.
#include "kernels/common/launch.cuh"
#include "kernels/scatter/launch.h"

namespace aicf {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr int kNone = -1;

__global__ void __launch_bounds__(kThreads) forget_kernel(int* last, int64_t rows, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < rows; i += step)
    last[i] = kNone;
}

__global__ void __launch_bounds__(kThreads)
    find_last_kernel(int* last, Places index, int64_t rows, int64_t sources, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < sources; i += step) {
    const int64_t row = index[i];
    if (row >= 0 && row < rows) atomicMax(last + row, static_cast<int>(i));
  }
}

template <class Bits>
__global__ void __launch_bounds__(kThreads)
    copy_last_kernel(Bits* y, const Bits* x, const Bits* src, const int* last, int64_t rows, int64_t columns,
                     const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < rows * columns; i += step) {
    const int64_t row = columns == 1 ? i : i / columns;
    const int from = last[row];
    if (from != kNone)
      y[i] = src[from * columns + (i - row * columns)];
    else if (x != y)
      y[i] = x[i];
  }
}

template <class Bits>
Status copy_last(const Scatter& s, const int* last, const LaunchContext& ctx) {
  return launch(ctx, grid_stride_blocks(s.rows * s.columns, kThreads), kThreads, 0, copy_last_kernel<Bits>,
                static_cast<Bits*>(s.y), static_cast<const Bits*>(s.x), static_cast<const Bits*>(s.src), last,
                s.rows, s.columns, ctx.predicate);
}

}  // namespace

Status scatter_last_cuda(const Scatter& s, const LaunchContext& ctx) {
  if (s.rows * s.columns == 0) return Status::ok();
  int* last = static_cast<int*>(ctx.workspace);
  AICF_TRY(launch(ctx, grid_stride_blocks(s.rows, kThreads), kThreads, 0, forget_kernel, last, s.rows,
                  ctx.predicate));
  if (s.sources != 0)
    AICF_TRY(launch(ctx, grid_stride_blocks(s.sources, kThreads), kThreads, 0, find_last_kernel, last,
                    s.index, s.rows, s.sources, ctx.predicate));
  switch (dtype_size(s.dtype)) {
    case 8:
      return copy_last<uint64_t>(s, last, ctx);
    case 4:
      return copy_last<uint32_t>(s, last, ctx);
    case 2:
      return copy_last<uint16_t>(s, last, ctx);
    default:
      return copy_last<uint8_t>(s, last, ctx);
  }
}

}  // namespace aicf
