// Several moves in one launch. A plane of which one side is short, such as the weights of a window for all
// channels, is moved along its long side on both ends: a thread has a place of that side, and all elements of
// the short one there.
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

struct Part {
  void* y;
  const void* x;
  int64_t count;          // elements, or pieces of planes: 32 places of the long side
  StridedShape<2> shape;  // of the elements, or of the stack of planes
  int64_t y_step;         // of a plane that gathers: from one element of the short side to the next
  int64_t x_step;         // of a plane: along the long side if it gathers, else along the short one
  uint32_t narrow, wide;  // the sides of a plane; 0 for elements
  bool gathers;           // x's neighbours are along the short side, else y's
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
  if (kHasPlanes && part.narrow != 0)
    move_planes<To, From>(part, block, blocks, staged);
  else
    move_elements<To, From>(part, block, blocks);
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
    const int64_t each = moves[n].narrow == 0 ? kPartThreads : kPartThreads / kWarp;
    p.first[n + 1] = p.first[n] + std::min(grid_stride_blocks(moves[n].count, each), kPartBlocks);
  }
  return launch(ctx, p.first[moves.size()], kPartThreads, 0, parts_kernel<To, From>, p, ctx.predicate);
}

}  // namespace aicf::cuda
