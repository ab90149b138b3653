// attention: a block of threads has some queries of a head and walks along its keys, with the largest score
// so far of each query and sums that are rescaled when it grows.
#pragma once
#include "kernels/attention/dropout.cuh"
#include "kernels/attention/scores.cuh"
#include "kernels/attention/tiling.cuh"
#include "kernels/common/reduce.cuh"

namespace aicf::cuda {

// The head and the rows of a block of threads. Of the queries of a causal head the last have most keys, and
// of its keys the first most queries: they begin first, the `latest` or the first rows of all heads.
struct BlockPlace {
  int64_t b, h, row;
  __device__ __forceinline__ BlockPlace(int64_t batch, int64_t heads, int64_t rows, int own, bool latest,
                                        int64_t block = blockIdx.x) {
    const int64_t all = batch * heads, index = block % all, turn = block / all;
    b = index / heads;
    h = index % heads;
    row = (latest ? (rows + own - 1) / own - 1 - turn : turn) * own;
  }
};

template <class S>
constexpr size_t kForwardShared = (S::Own::kElements + 2 * S::Walked::kElements) * sizeof(typename S::T);

// Of the two rows of a lane.
template <class T>
struct RunningRows {
  using C = Compute<T>;
  C largest[2] = {minus_infinity<C>(), minus_infinity<C>()};
  C total[2] = {0, 0};  // of this lane's columns alone

  // Scores become exp(score - largest); `sums` are rescaled.
  template <int TILES, int COLUMN_TILES>
  __device__ __forceinline__ void add(C (&scores)[TILES][4], C (&sums)[COLUMN_TILES][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      C most = minus_infinity<C>();
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile)
        most = Max{}(most, Max{}(scores[tile][2 * half], scores[tile][2 * half + 1]));
      most = Max{}(largest[half], reduce_row<Max>(most));
      const C base = most == minus_infinity<C>() ? C(0) : most;
      const C factor = exp_for<T>(largest[half] - base);
      largest[half] = most;
      total[half] *= factor;
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          scores[tile][e] = exp_for<T>(scores[tile][e] - base);
          total[half] += scores[tile][e];
        }
#pragma unroll
      for (int tile = 0; tile < COLUMN_TILES; ++tile) {
        sums[tile][2 * half] *= factor;
        sums[tile][2 * half + 1] *= factor;
      }
    }
  }
};

template <class S>
__global__ void __launch_bounds__(S::kThreads)
    attention_kernel(const __grid_constant__ AttentionProblem p, bool wide) {
  dependency_wait();
  using T = typename S::T;
  using C = typename S::C;
  extern __shared__ __align__(128) unsigned char shared[];
  T* query = reinterpret_cast<T*>(shared);
  T* key = query + S::Own::kElements;
  T* value = key + S::Walked::kElements;

  const BlockPlace place(p.batch, p.heads, p.queries, S::kRows, true);
  const int64_t b = place.b, h = place.h, group = h / p.group(), left = p.queries - place.row;
  const int column = blockIdx.y * S::kColumns, warp_row = threadIdx.x / kWarp * kWarpRows;
  const int64_t last = place.row + (left < S::kRows ? left : S::kRows);
  const int64_t end = p.causal && last < p.keys ? last : p.keys;
  const Scoring<T> scoring(p, b, h);
  const Draws draws(p, b, h);

  S::template load<typename S::Own>(query, p.query, b, h, place.row, p.queries, p.size, wide);
  C sums[S::kColumnTiles][4] = {};
  RunningRows<T> rows;
  for (int64_t from = 0; from < end; from += S::kStep) {
    __syncthreads();  // the last step's tiles are done with
    S::template load<typename S::Walked>(key, p.key, b, group, from, p.keys, p.size, wide);
    commit_copies();
    S::template load<typename S::Walked>(value, p.value, b, group, from, p.keys, p.value_size, wide);
    commit_copies();
    wait_copies<1>();
    __syncthreads();  // queries and keys are there for all
    C scores[S::kTiles][4];
    multiply_rows<S::kPadded, S::kPitch>(scores, query + warp_row * S::kPitch, key);
    const Bounds<false> bounds(p, place.row + warp_row, from);
    scoring.score(scores, bounds);
#pragma unroll
    for (int tile = 0; tile < S::kTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (bounds.hides(tile, e)) scores[tile][e] = minus_infinity<C>();
    rows.add(scores, sums);
    if (p.random != nullptr) drop(scores, kept_bits<false, S::kTiles>(draws, place.row + warp_row, from));
    wait_copies<0>();
    __syncthreads();  // values too
    add_product<S::kPitch>(sums, scores, value + column);
  }
  wait_copies<0>();  // of queries, where there are no keys

  const int64_t rows_before = (b * p.heads + h) * p.queries;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const C sum = reduce_row<Add>(rows.total[half]), total = sum == C(0) ? C(1) : sum;
    const int64_t i = place.row + warp_row + row_of(2 * half);
    if (i >= p.queries) continue;
    if (column == 0 && lane() % 4 == 0) {
      static_cast<C*>(p.largest)[rows_before + i] = largest_kept(rows.largest[half], sum);
      static_cast<C*>(p.total)[rows_before + i] = total;
    }
    T* out = p.out.of<T>(b, h) + i * p.out.row;
#pragma unroll
    for (int tile = 0; tile < S::kColumnTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int c = column + tile * 8 + column_of(e);
        if (c < p.value_size) out[c] = narrow<T>(sums[tile][2 * half + e] / total * static_cast<C>(p.kept));
      }
  }
}

}  // namespace aicf::cuda
