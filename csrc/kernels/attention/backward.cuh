// The gradient of attention, each result by blocks of threads of its own that compute the scores again: no
// sum is shared, so each has one order.
#pragma once
#include "kernels/attention/forward.cuh"

namespace aicf::cuda {

constexpr int kDeltaThreads = 256;

// delta = sum of dout * out, a warp a row.
template <class T>
__global__ void __launch_bounds__(kDeltaThreads)
    attention_delta_kernel(const __grid_constant__ AttentionProblem p, Compute<T>* delta) {
  dependency_wait();
  constexpr int kWarps = kDeltaThreads / kWarp;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp; row < p.rows();
       row += static_cast<int64_t>(gridDim.x) * kWarps) {
    const int64_t head = row / p.queries, i = row % p.queries, b = head / p.heads, h = head % p.heads;
    const T *dout = p.dout.of<const T>(b, h) + i * p.dout.row,
            *out = p.saved.of<const T>(b, h) + i * p.saved.row;
    Compute<T> sum = 0;
    for (int c = lane(); c < p.value_size; c += kWarp) sum = fused(widen(dout[c]), widen(out[c]), sum);
    sum = reduce_warp<Add>(sum);
    if (lane() == 0) delta[row] = sum;
  }
}

template <class T>
Status launch_delta(const AttentionProblem& p, const LaunchContext& ctx, Compute<T>* delta) {
  if (p.rows() == 0) return Status::ok();
  return launch(ctx, grid_stride_blocks(p.rows() * kWarp, kDeltaThreads), kDeltaThreads, 0,
                attention_delta_kernel<T>, p, delta);
}

// What the gradient needs of a query besides its operands.
template <class C>
struct alignas(16) QueryRow {  // one load of f32
  C largest, inverse, delta;   // of its scores; of their total; see above

  // The row `at` of all, or of none.
  static __device__ __forceinline__ QueryRow read(const AttentionProblem& p, const C* delta, int64_t at,
                                                  bool there) {
    if (!there) return {C(0), C(0), C(0)};
    return {static_cast<const C*>(p.largest)[at], C(1) / static_cast<const C*>(p.total)[at], delta[at]};
  }
};

// Products become what is left of weights, and the products of dout and values the gradient of the scores.
// The rows of a tile are queries, or keys with KEYS_FIRST; `row_at(e, tile)` is of the query of an element.
template <bool KEYS_FIRST, class T, int TILES, class RowAt>
__device__ __forceinline__ void differentiate(const Scoring<T>& scoring, const Draws& draws,
                                              Compute<T> (&weights)[TILES][4], Compute<T> (&slopes)[TILES][4],
                                              int64_t row, int64_t column, RowAt row_at) {
  using C = Compute<T>;
  const AttentionProblem& p = scoring.p;
  const Bounds<KEYS_FIRST> bounds(p, row, column);
  scoring.score(weights, bounds);
  const unsigned bits = p.random != nullptr ? kept_bits<KEYS_FIRST, TILES>(draws, row, column) : 0xffffffffu;
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const QueryRow<C> of = row_at(e, tile);
      const bool hidden = bounds.hides(tile, e);
      const C weight = hidden ? C(0) : exp_for<T>(weights[tile][e] - of.largest) * of.inverse;
      const C left = keeps(bits, tile, e) ? static_cast<C>(p.kept) : C(0);
      weights[tile][e] = weight * left;
      slopes[tile][e] = weight * (slopes[tile][e] * left - of.delta);  // where it is hidden too: 0 times NaN
    }
}

// Rows of a result, times `factor`, from the sums of a warp.
template <class T, int TILES>
__device__ __forceinline__ void store_rows(const Heads<void*>& heads, int64_t b, int64_t h, int64_t row,
                                           int64_t rows, int column, int64_t columns, Compute<T> factor,
                                           const Compute<T> (&sums)[TILES][4]) {
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int64_t r = row + row_of(e), c = column + tile * 8 + column_of(e);
      if (r < rows && c < columns) heads.of<T>(b, h)[r * heads.row + c] = narrow<T>(factor * sums[tile][e]);
    }
}

template <class S>
constexpr size_t kBackwardShared = 2 * (S::Own::kElements + S::Walked::kElements) * sizeof(typename S::T) +
                                   S::kStep * sizeof(QueryRow<typename S::C>);

// dkey and dvalue: a block of threads has some keys, and walks along the queries of all heads of their group.
template <class S>
__global__ void __launch_bounds__(S::kThreads)
    attention_key_grad_kernel(const __grid_constant__ AttentionProblem p, const typename S::C* delta,
                              bool wide) {
  dependency_wait();
  using T = typename S::T;
  using C = typename S::C;
  extern __shared__ __align__(128) unsigned char shared[];
  T* key = reinterpret_cast<T*>(shared);
  T* value = key + S::Own::kElements;
  T* query = value + S::Own::kElements;
  T* dout = query + S::Walked::kElements;
  auto* query_rows = reinterpret_cast<QueryRow<C>*>(dout + S::Walked::kElements);

  const BlockPlace place(p.batch, p.key_heads, p.keys, S::kRows, false);
  const int64_t b = place.b, first = p.causal ? place.row / S::kStep * S::kStep : 0;
  const int column = blockIdx.y * S::kColumns, warp_row = threadIdx.x / kWarp * kWarpRows;

  S::template load<typename S::Own>(key, p.key, b, place.h, place.row, p.keys, p.size, wide);
  S::template load<typename S::Own>(value, p.value, b, place.h, place.row, p.keys, p.value_size, wide);
  C dkey[S::kColumnTiles][4] = {}, dvalue[S::kColumnTiles][4] = {};
  for (int64_t h = place.h * p.group(); h < (place.h + 1) * p.group(); ++h) {
    const Scoring<T> scoring(p, b, h);
    const Draws draws(p, b, h);
    const int64_t rows_before = (b * p.heads + h) * p.queries;
    for (int64_t from = first; from < p.queries; from += S::kStep) {
      __syncthreads();  // the last step's tiles are done with
      S::template load<typename S::Walked>(query, p.query, b, h, from, p.queries, p.size, wide);
      S::template load<typename S::Walked>(dout, p.dout, b, h, from, p.queries, p.value_size, wide);
      commit_copies();
      for (int i = threadIdx.x; i < S::kStep; i += S::kThreads)
        query_rows[i] = QueryRow<C>::read(p, delta, rows_before + from + i, from + i < p.queries);
      wait_copies<0>();
      __syncthreads();
      C weights[S::kTiles][4], slopes[S::kTiles][4];  // a row for each key
      multiply_rows<S::kPadded, S::kPitch>(weights, key + warp_row * S::kPitch, query);
      multiply_rows<S::kPadded, S::kPitch>(slopes, value + warp_row * S::kPitch, dout);
      differentiate<true>(scoring, draws, weights, slopes, place.row + warp_row, from,
                          [&](int e, int tile) { return query_rows[tile * 8 + column_of(e)]; });
      add_product<S::kPitch>(dvalue, weights, dout + column);
      add_product<S::kPitch>(dkey, slopes, query + column);
    }
  }
  wait_copies<0>();  // of keys and values, where there are no queries
  const int64_t row = place.row + warp_row;
  store_rows<T>(p.dkey, b, place.h, row, p.keys, column, p.size, static_cast<C>(p.scale), dkey);
  store_rows<T>(p.dvalue, b, place.h, row, p.keys, column, p.value_size, C(1), dvalue);
}

// dquery: a block of threads has some queries, and walks along their keys.
template <class S>
__global__ void __launch_bounds__(S::kThreads)
    attention_query_grad_kernel(const __grid_constant__ AttentionProblem p, const typename S::C* delta,
                                bool wide) {
  dependency_wait();
  using T = typename S::T;
  using C = typename S::C;
  extern __shared__ __align__(128) unsigned char shared[];
  T* query = reinterpret_cast<T*>(shared);
  T* dout = query + S::Own::kElements;
  T* key = dout + S::Own::kElements;
  T* value = key + S::Walked::kElements;

  const BlockPlace place(p.batch, p.heads, p.queries, S::kRows, true);
  const int64_t b = place.b, h = place.h, group = h / p.group(), left = p.queries - place.row;
  const int column = blockIdx.y * S::kColumns, warp_row = threadIdx.x / kWarp * kWarpRows;
  const int64_t last = place.row + (left < S::kRows ? left : S::kRows);
  const int64_t end = p.causal && last < p.keys ? last : p.keys;
  const Scoring<T> scoring(p, b, h);
  const Draws draws(p, b, h);

  QueryRow<C> own[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t i = place.row + warp_row + row_of(2 * half);
    own[half] = QueryRow<C>::read(p, delta, (b * p.heads + h) * p.queries + i, i < p.queries);
  }
  S::template load<typename S::Own>(query, p.query, b, h, place.row, p.queries, p.size, wide);
  S::template load<typename S::Own>(dout, p.dout, b, h, place.row, p.queries, p.value_size, wide);
  C dquery[S::kColumnTiles][4] = {};
  for (int64_t from = 0; from < end; from += S::kStep) {
    __syncthreads();  // the last step's tiles are done with
    S::template load<typename S::Walked>(key, p.key, b, group, from, p.keys, p.size, wide);
    S::template load<typename S::Walked>(value, p.value, b, group, from, p.keys, p.value_size, wide);
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    C weights[S::kTiles][4], slopes[S::kTiles][4];
    multiply_rows<S::kPadded, S::kPitch>(weights, query + warp_row * S::kPitch, key);
    multiply_rows<S::kPadded, S::kPitch>(slopes, dout + warp_row * S::kPitch, value);
    differentiate<false>(scoring, draws, weights, slopes, place.row + warp_row, from,
                         [&](int e, int) { return own[e / 2]; });
    add_product<S::kPitch>(dquery, slopes, key + column);
  }
  wait_copies<0>();  // of queries, where there are no keys
  store_rows<T>(p.dquery, b, h, place.row + warp_row, p.queries, column, p.size, static_cast<C>(p.scale),
                dquery);
}

}  // namespace aicf::cuda
