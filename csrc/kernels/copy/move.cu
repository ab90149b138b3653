// copy, transpose and broadcast of bits: elements of one size are moved by the same code, and rows that are
// neighbours on both sides in units of up to 16 bytes.
#include <algorithm>

#include "kernels/common/launch.cuh"
#include "kernels/common/strided_offsets.cuh"
#include "kernels/copy/boxes.cuh"
#include "kernels/copy/launch.h"
#include "kernels/copy/parts.cuh"

namespace aicf {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr int kTile = 32,
              kWideTile = 64;  // of a transposed plane, in elements; of small ones, if it has room

template <class T, class Integer>
__global__ void move_kernel(T* y, const T* x, int64_t n, const __grid_constant__ StridedShape<2> shape,
                            const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    int64_t at[2];
    offsets(shape, static_cast<Integer>(i), at);
    y[at[0]] = x[at[1]];
  }
}

// Neighbours on both sides, all reads of a thread under way together.
constexpr int kAhead = 4;
template <class T>
__global__ void move_all_kernel(T* y, const T* x, int64_t n, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kAhead + threadIdx.x;
  T read[kAhead];
#pragma unroll
  for (int j = 0; j < kAhead; ++j)
    if (first + j * kThreads < n) read[j] = x[first + j * kThreads];
#pragma unroll
  for (int j = 0; j < kAhead; ++j)
    if (first + j * kThreads < n) y[first + j * kThreads] = read[j];
}

// A move whose elements are apart in x and neighbours in y: `each` of these are written at once, and their
// reads are under way together. `shape` is that of the groups.
template <class T, int kEach, class Integer>
__global__ void move_groups_kernel(T* y, const T* x, int64_t n, const __grid_constant__ StridedShape<2> shape,
                                   int64_t x_step, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    int64_t at[2];
    offsets(shape, static_cast<Integer>(i), at);
    Vec<T, kEach> group;
#pragma unroll
    for (int k = 0; k < kEach; ++k) group.at[k] = x[at[1] + k * x_step];
    *reinterpret_cast<Vec<T, kEach>*>(y + at[0]) = group;
  }
}

// A stack of planes, each rows x columns: y's neighbours are along the columns, x's along the rows.
struct Planes {
  StridedShape<2> stack;  // of a plane: its offset in y, its offset in x
  int64_t rows, y_row, x_row;
  int64_t columns, y_column, x_column;
  int64_t tiles_down, tiles_across, tiles;
};

// Through shared memory, so that both sides are read and written along their own rows. The padding of a word
// keeps a column of the tile in different banks. 32 bits count the tiles, each of more than 16 x 16 elements:
// in 64 a thread would spend most of its time on where a tile lies.
template <class T, int TILE>
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(T* y, const T* x, const __grid_constant__ Planes p, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  constexpr int kRows = kThreads / TILE;  // that a block moves at once
  constexpr int kPadding = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
  __shared__ T tile[TILE][TILE + kPadding];
  const int along = threadIdx.x % TILE, first = threadIdx.x / TILE;
  const auto tiles = static_cast<uint32_t>(p.tiles), across = static_cast<uint32_t>(p.tiles_across);
  const uint32_t of_plane = static_cast<uint32_t>(p.tiles_down) * across;
  for (uint32_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const uint32_t plane = t / of_plane, in_plane = t % of_plane;
    const int64_t row = static_cast<int64_t>(in_plane / across) * TILE;
    const int64_t column = static_cast<int64_t>(in_plane % across) * TILE;
    int64_t base[2];
    offsets(p.stack, plane, base);
    const T* from = x + base[1] + column * p.x_column + (row + along) * p.x_row;
    T* to = y + base[0] + row * p.y_row + (column + along) * p.y_column;
    const bool has_row = row + along < p.rows, has_column = column + along < p.columns;
#pragma unroll
    for (int k = 0; k < TILE / kRows; ++k) {
      const int j = first + k * kRows;
      if (has_row && column + j < p.columns) tile[j][along] = from[j * p.x_column];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE / kRows; ++k) {
      const int i = first + k * kRows;
      if (has_column && row + i < p.rows) to[i * p.y_row] = tile[along][i];
    }
    __syncthreads();  // the tile has been read
  }
}

Planes planes_of(const Move& m, int tile) {
  const int row = m.shape.rank - 2, column = m.shape.rank - 1;
  Planes p{};
  p.rows = m.shape.shape[row];
  p.y_row = m.y_stride(row);
  p.x_row = m.x_stride(row);
  p.columns = m.shape.shape[column];
  p.y_column = m.y_stride(column);
  p.x_column = m.x_stride(column);
  for (int d = 0; d < row; ++d) p.stack.append(m.shape.shape[d], {m.y_stride(d), m.x_stride(d)});
  p.tiles_down = ceil_div<int64_t>(p.rows, tile);
  p.tiles_across = ceil_div<int64_t>(p.columns, tile);
  p.tiles = m.count / (p.rows * p.columns) * p.tiles_down * p.tiles_across;
  return p;
}

// Whether most threads of a tile have an element.
bool is_wide(const Move& m) {
  return std::min(m.shape.shape[m.shape.rank - 2], m.shape.shape[m.shape.rank - 1]) > kTile / 2;
}

// Whether y has room for groups of so many elements: along its rows, and where each of them begins.
bool has_groups(const Move& m, int64_t each, size_t bytes) {
  const int last = m.shape.rank - 1;
  if (last < 0 || m.y_stride(last) != 1) return false;
  uint64_t common = static_cast<uint64_t>(m.shape.shape[last]) * bytes | reinterpret_cast<uint64_t>(m.y);
  for (int d = 0; d < last; ++d) common |= static_cast<uint64_t>(m.y_stride(d)) * bytes;
  return common % (static_cast<uint64_t>(each) * bytes) == 0;
}

template <class T, int kEach>
Status move_groups(const Move& m, const LaunchContext& ctx) {
  StridedShape<2> groups = m.shape;
  const int last = m.shape.rank - 1;
  groups.shape[last] /= kEach;
  for (int64_t (&strides)[kMaxRank] : groups.strides) strides[last] *= kEach;
  const int64_t n = m.count / kEach;
  auto* kernel =
      counts_in_32_bits(n) ? move_groups_kernel<T, kEach, uint32_t> : move_groups_kernel<T, kEach, uint64_t>;
  return launch(ctx, grid_stride_blocks(n, kThreads), kThreads, 0, kernel, static_cast<T*>(m.y),
                static_cast<const T*>(m.x), n, groups, m.x_stride(last), ctx.predicate);
}

template <class T, int TILE>
Status transpose(const Move& m, const LaunchContext& ctx) {
  const Planes p = planes_of(m, TILE);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(p.tiles, INT32_MAX));
  return launch(ctx, blocks, kThreads, 0, transpose_kernel<T, TILE>, static_cast<T*>(m.y),
                static_cast<const T*>(m.x), p, ctx.predicate);
}

// Elements of T; what the shape counts and strides are in elements of T too.
template <class T>
Status move_as(const Move& m, const LaunchContext& ctx) {
  T* y = static_cast<T*>(m.y);
  const T* x = static_cast<const T*>(m.x);
  if (Part part; is_narrow(m, &part)) return move_parts<T, T>({part}, ctx);
  const bool is_one_row = m.shape.rank == 1 && m.y_stride(0) == 1 && m.x_stride(0) == 1;
  if (constexpr int64_t kLarge = 1 << 20; is_one_row && m.count >= kLarge)
    return launch(ctx, static_cast<unsigned>(ceil_div<int64_t>(m.count, kThreads * kAhead)), kThreads, 0,
                  move_all_kernel<T>, y, x, m.count, ctx.predicate);
  if (m.transposed() && is_wide(m)) {
    const int rank = m.shape.rank;
    if (sizeof(T) <= 2 && std::min(m.shape.shape[rank - 2], m.shape.shape[rank - 1]) >= kWideTile)
      return transpose<T, kWideTile>(m, ctx);
    return transpose<T, kTile>(m, ctx);
  }
  if (m.transposed())
    if (const Boxes b = boxes_of(m); std::max(b.count, b.reach) <= INT32_MAX)
      return launch(ctx, std::min(grid_stride_blocks(b.count, 1), kBoxBlocks), kBoxThreads, 0,
                    boxes_kernel<T>, y, x, b, ctx.predicate);
  constexpr int kEach = std::min<int>(4, 16 / sizeof(T));
  if constexpr (kEach > 1)
    if (has_groups(m, kEach, sizeof(T))) return move_groups<T, kEach>(m, ctx);
  auto* kernel = counts_in_32_bits(m.count) ? move_kernel<T, uint32_t> : move_kernel<T, uint64_t>;
  return launch(ctx, grid_stride_blocks(m.count, kThreads), kThreads, 0, kernel, y, x, m.count, m.shape,
                ctx.predicate);
}

// How many elements of `bytes` each move as one: a power of two that divides the rows, the steps between them
// and both addresses, and makes at most 16 bytes.
int64_t elements_per_unit(const Move& m, int64_t bytes) {
  if (!m.rows() || m.shape.rank == 0) return 1;
  const int last = m.shape.rank - 1;
  uint64_t common = static_cast<uint64_t>(m.shape.shape[last]);
  for (int d = 0; d < last; ++d)
    common |= static_cast<uint64_t>(m.y_stride(d)) | static_cast<uint64_t>(m.x_stride(d));
  const uint64_t all = common * static_cast<uint64_t>(bytes) | reinterpret_cast<uint64_t>(m.x) |
                       reinterpret_cast<uint64_t>(m.y) | 16;
  return static_cast<int64_t>(all & (~all + 1)) / bytes;
}

// The same move in units of `elements`, which elements_per_unit allows.
Move in_units(const Move& m, int64_t elements) {
  Move units = m;
  const int last = m.shape.rank - 1;
  units.count /= elements;
  if (elements == 1) return units;
  units.shape.shape[last] /= elements;
  for (int64_t (&strides)[kMaxRank] : units.shape.strides)
    for (int d = 0; d < last; ++d) strides[d] /= elements;
  return units;
}

// Calls f(T{}) with the type of a unit of so many bytes.
template <class F>
Status with_unit(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    case 8:
      return f(uint64_t{});
    default:
      return f(uint4{});
  }
}

}  // namespace

Status move_cuda(const Move& m, const LaunchContext& ctx) {
  if (m.count == 0) return Status::ok();
  if (m.from != m.to) return cast_cuda(m, ctx);
  if (Part part; is_repeated(m, &part)) return move_parts<uint4, uint4>({part}, ctx);
  const int64_t bytes = static_cast<int64_t>(dtype_size(m.to)), elements = elements_per_unit(m, bytes);
  const Move units = in_units(m, elements);
  return with_unit(bytes * elements, [&](auto unit) { return move_as<decltype(unit)>(units, ctx); });
}

Status moves_cuda(const Moves& moves, const LaunchContext& ctx) {
  const DType from = moves[0].from, to = moves[0].to;
  const int64_t bytes = static_cast<int64_t>(dtype_size(to));
  int64_t elements = from == to ? 16 / bytes : 1;
  std::vector<Part> parts;
  std::vector<Move> others;
  for (const Move& m : moves) {
    if (m.count == 0) continue;
    if (Part part; is_repeated(m, &part)) {
      parts.push_back(part);
      continue;
    }
    others.push_back(m);
    if (from == to) elements = std::min(elements, elements_per_unit(m, bytes));
  }
  for (const Move& m : others) {
    const Move units = in_units(m, elements);
    Part part{units.y, units.x, units.count, units.shape};
    is_narrow(units, &part);
    parts.push_back(part);
  }
  if (parts.empty()) return Status::ok();
  if (from == to)
    return with_unit(bytes * elements,
                     [&](auto unit) { return move_parts<decltype(unit), decltype(unit)>(parts, ctx); });
  return with_float_type(from, [&](auto x) {
    return with_float_type(to, [&](auto y) {
      return move_parts<typename decltype(y)::type, typename decltype(x)::type>(parts, ctx);
    });
  });
}

}  // namespace aicf
