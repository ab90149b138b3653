// attention on Hopper: as the other forward.cuh, with products of warpgroups.
#pragma once
#include "kernels/attention/hopper/masks.cuh"
#include "kernels/attention/hopper/walk.cuh"
#include "kernels/attention/launch.h"

namespace aicf {
using namespace cuda;
namespace {

template <class S>
constexpr size_t kShared = S::shared_bytes(1, 2, 0);

// As RunningRows, of products: a score is a product times the positive `scale`. Scores are not rounded before
// the largest is taken away, which is rounded once, and is the same in the gradients.
struct Rows {
  float largest[2] = {minus_infinity<float>(), minus_infinity<float>()};  // scores
  float total[2] = {0, 0};                                                // of this lane's columns alone
  float shrink[2];  // by what the last scores have made smaller what was summed before

  template <int TILES>
  __device__ __forceinline__ void weigh(float (&products)[TILES][4], float scale) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = minus_infinity<float>();
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile)
        most = Max{}(most, Max{}(products[tile][2 * half], products[tile][2 * half + 1]));
      most = Max{}(largest[half], reduce_row<Max>(most) * scale);
      const float base = most == minus_infinity<float>() ? 0.0f : most;
      shrink[half] = exp_fast(largest[half] - base);
      largest[half] = most;
      float sum = 0;
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          products[tile][e] = exp_fast(fmaf(products[tile][e], scale, -base));
          sum += products[tile][e];
        }
      total[half] = total[half] * shrink[half] + sum;
    }
  }
  template <int COLUMN_TILES>
  __device__ __forceinline__ void rescale(float (&sums)[COLUMN_TILES][4]) const {
    if (__any_sync(0xffffffffu, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
#pragma unroll
      for (int tile = 0; tile < COLUMN_TILES; ++tile)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[tile][e] *= shrink[e / 2];
    }
  }
};

template <class S, bool DROP, Masking MASKING>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    attention_hopper_kernel(const __grid_constant__ AttentionProblem p, bool wide) {
  dependency_wait();
#if AICF_HAS_WARPGROUPS
  using T = typename S::T;
  constexpr int D = S::kSize;
  extern __shared__ unsigned char raw[];
  unsigned char* own = S::aligned(raw);
  unsigned char* walked = own + S::Own::kBytes;

  const BlockPlace place(p.batch, p.heads, p.queries, S::kRows, true);
  const int queries = static_cast<int>(p.queries), keys = static_cast<int>(p.keys);
  const int first = static_cast<int>(place.row), row = first + S::warp_row();
  const int last = first + S::kRows < queries ? first + S::kRows : queries;
  const int end = p.causal && last < keys ? last : keys, steps = (end + S::kStep - 1) / S::kStep;
  const int group_last = first + (S::group() + 1) * kGroupRows - 1;
  const float scale = static_cast<float>(p.scale);
  const int64_t group = place.h / p.group();
  const T* key = p.key.of<const T>(place.b, group);
  const T* value = p.value.of<const T>(place.b, group);
  const auto fetch = [&](int step) {
    if (step >= steps) return;
    unsigned char* stage = walked + step % S::kStages * 2 * S::Walked::kBytes;
    S::Walked::template load<S::kThreads>(stage, key, p.key.row, step * S::kStep, keys,
                                          static_cast<int>(p.size), wide);
    S::Walked::template load<S::kThreads>(stage + S::Walked::kBytes, value, p.value.row, step * S::kStep,
                                          keys, static_cast<int>(p.value_size), wide);
  };

  S::Own::template load<S::kThreads>(own, p.query.of<const T>(place.b, place.h), p.query.row, first, queries,
                                     static_cast<int>(p.size), wide);
  S::begin(fetch);
  const auto stage_of = [&](int step) { return walked + step % S::kStages * 2 * S::Walked::kBytes; };
  const Draws draws(p, place.b, place.h);
  Mask<MASKING, false, T> mask(p, place.b, place.h);
  // What is left of the scores of a step as weights.
  const auto drop_some = [&](float (&weights)[S::kTiles][4], unsigned bits) {
    if constexpr (DROP) drop(weights, bits);
  };
  const auto kept = [&](int step) {
    if constexpr (DROP) return kept_bits<false, S::kTiles>(draws, row, step * S::kStep);
    return 0u;
  };
  float sums[D / 8][4] = {}, scores[S::kTiles][4];
  Left weights[S::kStep / 16];
  Rows rows;
  // The products of a step have come: they become weights.
  const auto weigh = [&](int step) {
    const int from = step * S::kStep;
    const bool whole = from + S::kStep <= keys && (!p.causal || from + S::kStep - 1 <= row);
    if constexpr (MASKING == Masking::Added) {
#pragma unroll
      for (int tile = 0; tile < S::kTiles; ++tile) mask.score(scores[tile], tile, scale);
    }
    if (!whole || !mask.shows_all()) {
#pragma unroll
      for (int tile = 0; tile < S::kTiles; ++tile)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int i = row + row_of(e), j = from + tile * 8 + column_of(e);
          if (i >= queries || j >= keys || (p.causal && j > i) || !mask.shows(tile, e))
            scores[tile][e] = minus_infinity<float>();
        }
    }
    rows.weigh(scores, MASKING == Masking::Added ? 1.0f : scale);
  };
  // Scores of the next step are multiplied in front of the values of this one, and weighed beside them. The
  // warpgroup sees keys in its own steps alone, and waits for the others in the rest.
  const int own_steps = p.causal && group_last / S::kStep + 1 < steps ? group_last / S::kStep + 1 : steps;
  if (steps > 0) {
    S::begin_step(0, fetch);
    mask.read(row, 0);
    start_scores<T, S::kRows, S::kStep, D>(scores, own, S::group_row(), stage_of(0));
    unsigned bits = kept(0);
    wait_sums<0>(scores);
    weigh(0);
    drop_some(scores, bits);
    pack_rows<T>(weights, scores);
    for (int step = 1; step < own_steps; ++step) {
      S::begin_step(step, fetch);
      mask.read(row, step * S::kStep);
      start_scores<T, S::kRows, S::kStep, D>(scores, own, S::group_row(), stage_of(step));
      start_adding<T, S::kStep, D>(sums, weights, stage_of(step - 1) + S::Walked::kBytes);
      bits = kept(step);
      wait_sums<1>(scores);
      weigh(step);
      drop_some(scores, bits);
      wait_sums<0>(sums);
      rows.rescale(sums);
      pack_rows<T>(weights, scores);
    }
    start_adding<T, S::kStep, D>(sums, weights, stage_of(own_steps - 1) + S::Walked::kBytes);
    wait_sums<0>(sums);
    for (int step = own_steps; step < steps; ++step) S::begin_step(step, fetch);
  }
  wait_copies<0>();

  const int64_t rows_before = (place.b * p.heads + place.h) * p.queries;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = reduce_row<Add>(rows.total[half]), total = sum == 0.0f ? 1.0f : sum;
    const int i = row + row_of(2 * half);
    if (i >= queries) continue;
    if (lane() % 4 == 0) {
      static_cast<float*>(p.largest)[rows_before + i] = largest_kept(rows.largest[half], sum);
      static_cast<float*>(p.total)[rows_before + i] = total;
    }
    const float left = DROP ? static_cast<float>(p.kept) : 1.0f;
    T* out = p.out.of<T>(place.b, place.h) + i * p.out.row;
#pragma unroll
    for (int tile = 0; tile < D / 8; ++tile)
      store_pair(out, tile * 8 + column_of(0), static_cast<int>(p.value_size),
                 sums[tile][2 * half] / total * left, sums[tile][2 * half + 1] / total * left);
  }
#endif
}

template <Masking MASKING>
Status attention_with(const AttentionProblem& p, const LaunchContext& ctx) {
  return with_half_type(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const bool wide = rows_are_wide<T>({&p.query, &p.key, &p.value});
    return with_walk<T, 2, 2, 3, 4>(p, [&](auto walk) {
      using S = decltype(walk);
      const auto blocks = p.batch * p.heads * ceil_div<int64_t>(p.queries, S::kRows);
      return launch(ctx, dim3(static_cast<unsigned>(blocks)), S::kThreads, kShared<S>,
                    p.random != nullptr ? attention_hopper_kernel<S, true, MASKING>
                                        : attention_hopper_kernel<S, false, MASKING>,
                    p, wide);
    });
  });
}

}  // namespace
}  // namespace aicf
