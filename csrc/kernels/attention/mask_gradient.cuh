// The gradient of a mask: a block of threads has a tile of one of its matrices, and adds up the gradients of
// the scores there over some of the images and heads that share the matrix. Where there are several such
// parts their sums are added in order, so each element has one order.
#pragma once
#include "kernels/attention/backward.cuh"

namespace aicf::cuda {

template <class S>
constexpr size_t kMaskShared = 2 * (S::Own::kElements + S::Walked::kElements) * sizeof(typename S::T);

// sums: where the parts go, [parts, matrices, queries, keys]; null with one part, which goes to dmask.
template <class S>
__global__ void __launch_bounds__(S::kThreads, sizeof(typename S::T) == 2 && S::kPadded <= 64 ? 4 : 1)
    attention_mask_grad_kernel(const __grid_constant__ AttentionProblem p, const typename S::C* delta,
                               typename S::C* sums, int64_t of_part, bool wide) {
  dependency_wait();
  using T = typename S::T;
  using C = typename S::C;
  extern __shared__ __align__(128) unsigned char shared[];
  T* query = reinterpret_cast<T*>(shared);
  T* dout = query + S::Own::kElements;
  T* key = dout + S::Own::kElements;
  T* value = key + S::Walked::kElements;

  const int64_t down = (p.queries + S::kRows - 1) / S::kRows, across = (p.keys + S::kStep - 1) / S::kStep;
  const int64_t matrix = blockIdx.x / (down * across), tile_index = blockIdx.x % (down * across);
  const int64_t first = tile_index / across * S::kRows, from = tile_index % across * S::kStep;
  const int warp_row = threadIdx.x / kWarp * kWarpRows;
  const MaskMatrix of(p, matrix);
  const int64_t begin = blockIdx.y * of_part, end = begin + of_part < of.count ? begin + of_part : of.count;

  C total[S::kTiles][4] = {};
  for (int64_t n = begin; n < end; ++n) {
    const int64_t b = of.image(n), h = of.head(n), group = h / p.group();
    const Scoring<T> scoring(p, b, h);
    const Draws draws(p, b, h);
    __syncthreads();  // the last tiles are done with
    S::template load<typename S::Own>(query, p.query, b, h, first, p.queries, p.size, wide);
    S::template load<typename S::Own>(dout, p.dout, b, h, first, p.queries, p.value_size, wide);
    S::template load<typename S::Walked>(key, p.key, b, group, from, p.keys, p.size, wide);
    S::template load<typename S::Walked>(value, p.value, b, group, from, p.keys, p.value_size, wide);
    commit_copies();
    QueryRow<C> own[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t i = first + warp_row + row_of(2 * half);
      own[half] = QueryRow<C>::read(p, delta, (b * p.heads + h) * p.queries + i, i < p.queries);
    }
    wait_copies<0>();
    __syncthreads();
    C weights[S::kTiles][4], slopes[S::kTiles][4];
    multiply_rows<S::kPadded, S::kPitch>(weights, query + warp_row * S::kPitch, key);
    multiply_rows<S::kPadded, S::kPitch>(slopes, dout + warp_row * S::kPitch, value);
    differentiate<false>(scoring, draws, weights, slopes, first + warp_row, from,
                         [&](int e, int) { return own[e / 2]; });
#pragma unroll
    for (int tile = 0; tile < S::kTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 4; ++e) total[tile][e] += slopes[tile][e];
  }

  const int64_t matrices = p.dmask_images * p.dmask_heads;
#pragma unroll
  for (int tile = 0; tile < S::kTiles; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int64_t i = first + warp_row + row_of(e), j = from + tile * 8 + column_of(e);
      if (i >= p.queries || j >= p.keys) continue;
      const int64_t at = (matrix * p.queries + i) * p.keys + j;
      if (sums != nullptr)
        sums[blockIdx.y * matrices * p.queries * p.keys + at] = total[tile][e];
      else if (p.dmask_wide)
        static_cast<C*>(p.dmask)[at] = total[tile][e];
      else
        static_cast<T*>(p.dmask)[at] = narrow<T>(total[tile][e]);
    }
}

// The parts in order: eight groups of threads have an eighth of them each, and their sums are added in order.
constexpr int kPartGroups = 8;
template <class T>
__global__ void __launch_bounds__(kDeltaThreads)
    attention_mask_parts_kernel(const __grid_constant__ AttentionProblem p, const Compute<T>* sums,
                                int64_t parts) {
  dependency_wait();
  constexpr int kOwn = kDeltaThreads / kPartGroups;
  __shared__ Compute<T> totals[kPartGroups][kOwn];
  const int own = threadIdx.x % kOwn, group = threadIdx.x / kOwn;
  const int64_t all = p.dmask_images * p.dmask_heads * p.queries * p.keys;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kOwn + own;
  Compute<T> total = 0;
#pragma unroll 8
  for (int64_t part = parts * group / kPartGroups; part < parts * (group + 1) / kPartGroups; ++part)
    total += at < all ? sums[part * all + at] : Compute<T>(0);
  totals[group][own] = total;
  __syncthreads();
  if (group > 0 || at >= all) return;
  for (int g = 1; g < kPartGroups; ++g) total += totals[g][own];
  if (p.dmask_wide)
    static_cast<Compute<T>*>(p.dmask)[at] = total;
  else
    static_cast<T*>(p.dmask)[at] = narrow<T>(total);
}

template <class T>
Status add_mask_parts(const AttentionProblem& p, const LaunchContext& ctx, const Compute<T>* sums,
                      int64_t parts) {
  const int64_t all = p.dmask_images * p.dmask_heads * p.queries * p.keys;
  const auto blocks = ceil_div<int64_t>(all, kDeltaThreads / kPartGroups);
  return launch(ctx, dim3(static_cast<unsigned>(blocks)), kDeltaThreads, 0, attention_mask_parts_kernel<T>, p,
                sums, parts);
}

}  // namespace aicf::cuda
