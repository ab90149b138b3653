// Several moves in one launch. A plane of which one side is short, such as the weights of a window for all
// channels, is moved along its long side on both ends: a thread has a place of that side, and all elements of
// the short one there. A run of y that repeats one element, such as the zeros of a gradient, is written 16
// bytes at a time.
#pragma once
#include <algorithm>
#include <vector>

#include "kernels/common/launch.cuh"
#include "kernels/common/strided_offsets.cuh"
#include "kernels/copy/cast.cuh"
#include "kernels/copy/move.h"

namespace aicf::cuda {

constexpr int kPartThreads = 256;
constexpr int kMostNarrow = 16;            // elements of a short side
constexpr int64_t kLeastWide = kWarp;      // elements of a long side
constexpr unsigned kPartBlocks = 132 * 8;  // that a large chip has at once
constexpr int kRepeatedEach = 4;           // writes of a thread, until all blocks are there

struct Part {
  void* y;
  const void* x;
  int64_t count;          // elements; or pieces of planes: 32 places of the long side; or 16 bytes of a run
  StridedShape<2> shape;  // of the elements, or of the stack of planes
  int64_t y_step;         // of a plane that gathers: from one element of the short side to the next
  int64_t x_step;         // of a plane: along the long side if it gathers, else along the short one
  uint32_t narrow, wide;  // the sides of a plane; 0 for elements
  bool gathers;           // x's neighbours are along the short side, else y's
  uint8_t repeated;       // bytes of the one element that a run has; 0 for others
  uint8_t rest;           // bytes of a run after the last 16
};

// The moves of one launch: part p has the blocks first[p] to first[p + 1] of the grid.
struct Parts {
  uint32_t first[kMostMoves + 1];
  Part parts[kMostMoves];
};
static_assert(sizeof(Parts) <= 4000, "kernel parameters are at most 4 KB");

template <class To, class From>
__device__ __forceinline__ void move_elements(const Part& part, uint32_t block, uint32_t blocks) {
  const int64_t step = static_cast<int64_t>(blocks) * kPartThreads;
  for (int64_t i = static_cast<int64_t>(block) * kPartThreads + threadIdx.x; i < part.count; i += step) {
    int64_t at[2];
    offsets(part.shape, static_cast<uint64_t>(i), at);
    static_cast<To*>(part.y)[at[0]] = moved<To>(static_cast<const From*>(part.x)[at[1]]);
  }
}

// A warp has a piece. Where y's neighbours are along the short side, the piece is one run of y, which goes
// through shared memory.
template <class To, class From>
__device__ __forceinline__ void move_planes(const Part& part, uint32_t block, uint32_t blocks, To* staged) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  constexpr int kWarps = kPartThreads / kWarp;
  const int narrow = static_cast<int>(part.narrow);
  const int64_t across = (part.wide + kWarp - 1) / kWarp;
  for (int64_t piece = static_cast<int64_t>(block) * kWarps + warp; piece < part.count;
       piece += static_cast<int64_t>(blocks) * kWarps) {
    const int64_t plane = piece / across, begin = (piece - plane * across) * kWarp;
    const int here = static_cast<int>(min(static_cast<int64_t>(kWarp), part.wide - begin));
    int64_t at[2];
    offsets(part.shape, static_cast<uint64_t>(plane), at);
    const From* x = static_cast<const From*>(part.x) + at[1];
    To* y = static_cast<To*>(part.y) + at[0];
    const int64_t place = begin + lane;
    From values[kMostNarrow];
    if (lane < here) {
#pragma unroll
      for (int k = 0; k < kMostNarrow; ++k)
        if (k < narrow) values[k] = part.gathers ? x[place * part.x_step + k] : x[k * part.x_step + place];
    }
    if (part.gathers) {
      if (lane < here) {
#pragma unroll
        for (int k = 0; k < kMostNarrow; ++k)
          if (k < narrow) y[k * part.y_step + place] = moved<To>(values[k]);
      }
    } else {
      To* mine = staged + warp * kWarp * kMostNarrow;
      if (lane < here) {
#pragma unroll
        for (int k = 0; k < kMostNarrow; ++k)
          if (k < narrow) mine[lane * narrow + k] = moved<To>(values[k]);
      }
      __syncwarp();
      for (int e = lane; e < here * narrow; e += kWarp) y[begin * narrow + e] = mine[e];
      __syncwarp();  // the piece has been read
    }
  }
}

// A run that repeats an element of `bytes`: 8 bytes of it.
__device__ __forceinline__ uint64_t repeated(const void* x, int bytes) {
  if (bytes == 1) return *static_cast<const uint8_t*>(x) * 0x0101010101010101u;
  if (bytes == 2) return *static_cast<const uint16_t*>(x) * 0x0001000100010001u;
  if (bytes == 4) return *static_cast<const uint32_t*>(x) * 0x0000000100000001u;
  return *static_cast<const uint64_t*>(x);
}

__device__ __forceinline__ void write_run(const Part& part, uint32_t block, uint32_t blocks) {
  const uint64_t eight = repeated(part.x, part.repeated);
  const ulonglong2 value = make_ulonglong2(eight, eight);
  const int64_t step = static_cast<int64_t>(blocks) * kPartThreads;
  auto* y = static_cast<ulonglong2*>(part.y);
#pragma unroll 4
  for (int64_t i = static_cast<int64_t>(block) * kPartThreads + threadIdx.x; i < part.count; i += step)
    y[i] = value;
  if (block == 0 && threadIdx.x < part.rest)
    reinterpret_cast<uint8_t*>(y + part.count)[threadIdx.x] =
        static_cast<uint8_t>(eight >> threadIdx.x % 8 * 8);
}

template <class To, class From>
__global__ void __launch_bounds__(kPartThreads)
    parts_kernel(const __grid_constant__ Parts p, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  constexpr bool kHasPlanes = sizeof(To) <= 8;  // neighbours that move as one are no plane
  __shared__ To staged[kHasPlanes ? kPartThreads * kMostNarrow : 1];
  uint32_t number = 0;
  while (blockIdx.x >= p.first[number + 1]) ++number;
  const Part& part = p.parts[number];
  const uint32_t block = blockIdx.x - p.first[number], blocks = p.first[number + 1] - p.first[number];
  if (part.repeated != 0)
    write_run(part, block, blocks);
  else if (kHasPlanes && part.narrow != 0)
    move_planes<To, From>(part, block, blocks, staged);
  else
    move_elements<To, From>(part, block, blocks);
}

// Whether a move writes one element to all of a run that begins where 16 bytes do, and that part.
inline bool is_repeated(const Move& m, Part* out) {
  if (m.from != m.to || m.shape.rank != 1 || m.y_stride(0) != 1 || m.x_stride(0) != 0) return false;
  if (reinterpret_cast<uintptr_t>(m.y) % 16 != 0) return false;
  const auto each = static_cast<int64_t>(dtype_size(m.to)), bytes = m.count * each;
  Part part{m.y, m.x, bytes / 16, {}};
  part.repeated = static_cast<uint8_t>(each);
  part.rest = static_cast<uint8_t>(bytes % 16);
  *out = part;
  return true;
}

// Whether a move is one of planes with a short side, and that part.
inline bool is_narrow(const Move& m, Part* out) {
  if (!m.transposed()) return false;
  const int row = m.shape.rank - 2, column = m.shape.rank - 1;
  const int64_t rows = m.shape.shape[row], columns = m.shape.shape[column];
  if (m.y_stride(column) != 1 || m.x_stride(row) != 1 || std::max(rows, columns) > INT32_MAX) return false;
  const bool gathers = rows <= kMostNarrow && columns >= kLeastWide;
  const bool scatters = columns <= kMostNarrow && rows >= kLeastWide && m.y_stride(row) == columns;
  if (!gathers && !scatters) return false;
  Part part{m.y, m.x, 0, {}, gathers ? m.y_stride(row) : 0, m.x_stride(column)};
  for (int d = 0; d < row; ++d) part.shape.append(m.shape.shape[d], {m.y_stride(d), m.x_stride(d)});
  part.narrow = static_cast<uint32_t>(gathers ? rows : columns);
  part.wide = static_cast<uint32_t>(gathers ? columns : rows);
  part.gathers = gathers;
  part.count = m.count / (rows * columns) * ((part.wide + kWarp - 1) / kWarp);
  *out = part;
  return true;
}

template <class To, class From>
Status move_parts(const std::vector<Part>& moves, const LaunchContext& ctx) {
  Parts p{};
  for (size_t n = 0; n < moves.size(); ++n) {
    p.parts[n] = moves[n];
    const int each = moves[n].repeated != 0 ? kPartThreads * kRepeatedEach
                     : moves[n].narrow == 0 ? kPartThreads
                                            : kPartThreads / kWarp;
    p.first[n + 1] = p.first[n] + std::min(grid_stride_blocks(moves[n].count, each), kPartBlocks);
  }
  return launch(ctx, p.first[moves.size()], kPartThreads, 0, parts_kernel<To, From>, p, ctx.predicate);
}

}  // namespace aicf::cuda
