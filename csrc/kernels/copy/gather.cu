// transpose and broadcast: the result in order, each element from where its strides say. Bits only, so
// elements of one size are moved by the same code.
#include <algorithm>

#include "kernels/common/launch.cuh"
#include "kernels/common/strided_offsets.cuh"
#include "kernels/copy/launch.h"

namespace aicf {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr int kTile = 32;                    // of a transposed plane, in elements
constexpr int kTileRows = kThreads / kTile;  // that a block moves at once

template <class T, class Integer>
__global__ void gather_kernel(T* y, const T* x, int64_t n, const __grid_constant__ StridedShape<1> shape) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    int64_t at[1];
    offsets(shape, static_cast<Integer>(i), at);
    y[i] = x[at[0]];
  }
}

// A stack of planes, each rows x columns in the result and columns x rows in x.
struct Planes {
  StridedShape<2> stack;      // of a plane: its offset in y, its offset in x
  int64_t rows, y_row;        // y_row: elements of y from row to row
  int64_t columns, x_column;  // x_column: elements of x from column to column
  int64_t tiles_down, tiles_across, tiles;
};

// Through shared memory, so that both sides are read and written along their own rows. The padding keeps a
// column of the tile in different banks.
template <class T>
__global__ void transpose_kernel(T* y, const T* x, const __grid_constant__ Planes p) {
  __shared__ T tile[kTile][kTile + 1];
  const int along = threadIdx.x % kTile, first = threadIdx.x / kTile;
  for (int64_t t = blockIdx.x; t < p.tiles; t += gridDim.x) {
    const int64_t plane = t / (p.tiles_down * p.tiles_across), in_plane = t % (p.tiles_down * p.tiles_across);
    const int64_t row = in_plane / p.tiles_across * kTile, column = in_plane % p.tiles_across * kTile;
    int64_t base[2];
    offsets(p.stack, static_cast<uint64_t>(plane), base);
    for (int j = first; j < kTile; j += kTileRows)
      if (column + j < p.columns && row + along < p.rows)
        tile[j][along] = x[base[1] + (column + j) * p.x_column + row + along];
    __syncthreads();
    for (int i = first; i < kTile; i += kTileRows)
      if (row + i < p.rows && column + along < p.columns)
        y[base[0] + (row + i) * p.y_row + column + along] = tile[along][i];
    __syncthreads();  // the tile has been read
  }
}

// The dimension of `shape` that is contiguous in x, or -1; the last one is contiguous in y.
int contiguous_dimension(const StridedShape<1>& shape) {
  for (int d = 0; d < shape.rank - 1; ++d)
    if (shape.strides[0][d] == 1 && shape.shape[d] > 1) return d;
  return -1;
}

Planes planes_of(const StridedShape<1>& shape, int rows) {
  Planes p{};
  p.rows = shape.shape[rows];
  p.columns = shape.shape[shape.rank - 1];
  p.x_column = shape.strides[0][shape.rank - 1];
  int64_t y_stride[kMaxRank], planes = 1;
  y_stride[shape.rank - 1] = 1;
  for (int d = shape.rank - 2; d >= 0; --d) y_stride[d] = y_stride[d + 1] * shape.shape[d + 1];
  p.y_row = y_stride[rows];
  for (int d = 0; d < shape.rank - 1; ++d) {
    if (d == rows) continue;
    p.stack.append(shape.shape[d], {y_stride[d], shape.strides[0][d]});
    planes *= shape.shape[d];
  }
  p.tiles_down = ceil_div<int64_t>(p.rows, kTile);
  p.tiles_across = ceil_div<int64_t>(p.columns, kTile);
  p.tiles = planes * p.tiles_down * p.tiles_across;
  return p;
}

template <class T>
Status gather_as(const StridedShape<1>& shape, const TensorDesc& y, const TensorDesc& x,
                 const LaunchContext& ctx) {
  const int rows = contiguous_dimension(shape);
  if (rows >= 0 && shape.strides[0][shape.rank - 1] > 1) {
    const Planes p = planes_of(shape, rows);
    const auto blocks = static_cast<unsigned>(std::min<int64_t>(p.tiles, INT32_MAX));
    return launch(ctx, blocks, kThreads, 0, transpose_kernel<T>, y.ptr<T>(), x.ptr<const T>(), p);
  }
  const int64_t n = y.numel();
  auto* kernel = counts_in_32_bits(n) ? gather_kernel<T, uint32_t> : gather_kernel<T, uint64_t>;
  return launch(ctx, grid_stride_blocks(n, kThreads), kThreads, 0, kernel, y.ptr<T>(), x.ptr<const T>(), n,
                shape);
}

Status gather(const StridedShape<1>& shape, const OpDesc& op, const LaunchContext& ctx) {
  const TensorDesc &x = op.inputs[0], &y = op.outputs[0];
  if (y.numel() == 0) return Status::ok();
  switch (dtype_size(y.dtype)) {
    case 1:
      return gather_as<uint8_t>(shape, y, x, ctx);
    case 2:
      return gather_as<uint16_t>(shape, y, x, ctx);
    case 4:
      return gather_as<uint32_t>(shape, y, x, ctx);
    default:
      return gather_as<uint64_t>(shape, y, x, ctx);
  }
}

}  // namespace

Status transpose_cuda(const OpDesc& op, const LaunchContext& ctx) {
  const TensorDesc &x = op.inputs[0], &y = op.outputs[0];
  const std::vector<int64_t>& perm = op.attrs.get(kPerm);
  StridedShape<1> shape;
  for (int d = 0; d < y.rank; ++d)
    shape.append(y.shape[d], {broadcast_stride(x, x.rank, static_cast<int>(perm[static_cast<size_t>(d)]))});
  return gather(shape, op, ctx);
}

Status broadcast_cuda(const OpDesc& op, const LaunchContext& ctx) {
  const TensorDesc &x = op.inputs[0], &y = op.outputs[0];
  StridedShape<1> shape;
  for (int d = 0; d < y.rank; ++d) shape.append(y.shape[d], {broadcast_stride(x, y.rank, d)});
  return gather(shape, op, ctx);
}

}  // namespace aicf
