// The gradient of attention on Hopper: as the other backward.cuh, with products of warpgroups.
#pragma once
#include "kernels/attention/backward.cuh"
#include "kernels/attention/hopper/masks.cuh"
#include "kernels/attention/hopper/walk.cuh"
#include "kernels/attention/launch.h"

namespace aicf {
using namespace cuda;
namespace {

using Row = QueryRow<float>;
static_assert(sizeof(Row) == 16, "one copy in the background");

// What both gradients need of each query, LANES lanes a row.
template <class T, int LANES>
__global__ void __launch_bounds__(kDeltaThreads)
    attention_hopper_rows_kernel(const __grid_constant__ AttentionProblem p, Row* rows, bool wide) {
  dependency_wait();
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kDeltaThreads + threadIdx.x) / LANES;
  const int own = static_cast<int>(threadIdx.x) % LANES, size = static_cast<int>(p.value_size);
  float sum = 0;
  if (at < p.rows()) {
    const int64_t head = at / p.queries, i = at % p.queries, b = head / p.heads, h = head % p.heads;
    const T *dout = p.dout.of<const T>(b, h) + i * p.dout.row,
            *out = p.saved.of<const T>(b, h) + i * p.saved.row;
    if (wide && size % 8 == 0) {
      for (int c = own * 8; c < size; c += LANES * 8) {
        const auto x = *reinterpret_cast<const Vec<T, 8>*>(dout + c);
        const auto y = *reinterpret_cast<const Vec<T, 8>*>(out + c);
#pragma unroll
        for (int k = 0; k < 8; ++k) sum = fused(widen(x.at[k]), widen(y.at[k]), sum);
      }
    } else {
      for (int c = own; c < size; c += LANES) sum = fused(widen(dout[c]), widen(out[c]), sum);
    }
  }
#pragma unroll
  for (int distance = LANES / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (at < p.rows() && own == 0)
    rows[at] = {static_cast<const float*>(p.largest)[at], 1.0f / static_cast<const float*>(p.total)[at], sum};
}

// The products become weights (rows are queries, or keys with KEYS_FIRST). `whole`: nothing is hidden.
template <Masking MASKING, bool KEYS_FIRST, class T, int TILES, class RowAt>
__device__ __forceinline__ void weigh(const AttentionProblem& p, const Mask<MASKING, KEYS_FIRST, T>& mask,
                                      float (&x)[TILES][4], int row, int column, bool whole, RowAt row_at) {
  const Bounds<KEYS_FIRST> bounds(p, row, column);
  const auto scale = static_cast<float>(p.scale);
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
    if constexpr (MASKING == Masking::Added) mask.score(x[tile], tile, scale);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const Row of = row_at(e, tile);
      const float factor = MASKING == Masking::Added ? 1.0f : scale;
      if ((!whole && bounds.hides(tile, e)) || !mask.shows(tile, e))
        x[tile][e] = 0;
      else
        x[tile][e] = exp_fast(fmaf(x[tile][e], factor, -of.largest)) * of.inverse;
    }
  }
}

// The products of dout and values become the gradient of the scores; with DROP, of what `bits` keep.
template <bool DROP, int TILES, class RowAt>
__device__ __forceinline__ void slope(const float (&weights)[TILES][4], float (&x)[TILES][4], RowAt row_at,
                                      unsigned bits, float kept) {
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if constexpr (DROP) x[tile][e] *= keeps(bits, tile, e) ? kept : 0.0f;
      x[tile][e] = weights[tile][e] * (x[tile][e] - row_at(e, tile).delta);
    }
}

// Rows of a result, times `factor`, from the sums of a warp.
template <class T, int TILES>
__device__ __forceinline__ void store(const Heads<void*>& heads, int64_t b, int64_t h, int row, int rows,
                                      int columns, float factor, const float (&sums)[TILES][4]) {
  T* first = heads.of<T>(b, h);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + row_of(2 * half);
    if (r >= rows) continue;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
      store_pair(first + r * heads.row, tile * 8 + column_of(0), columns, factor * sums[tile][2 * half],
                 factor * sums[tile][2 * half + 1]);
  }
}

template <class S>
constexpr size_t kKeyShared = S::shared_bytes(2, 2, S::kStep* static_cast<int>(sizeof(Row)));
template <class S>
constexpr size_t kQueryShared = S::shared_bytes(2, 2, 0);

// Whether any head is; the same for all threads of a block.
__device__ __forceinline__ bool any_chosen(const AttentionProblem& p) {
  int32_t any = 0;
  for (int64_t i = threadIdx.x; i < p.batch * p.key_heads; i += blockDim.x) any |= p.chosen[i];
  return __syncthreads_or(any) != 0;
}

// dkey and dvalue: a block has some keys, and walks along the queries of all heads of their group.
template <class S, bool DROP, Masking MASKING>
__device__ __forceinline__ void key_gradients(const AttentionProblem& p, const Row* rows, bool wide,
                                              int64_t block) {
#if AICF_HAS_WARPGROUPS
  using T = typename S::T;
  constexpr int D = S::kSize;
  extern __shared__ unsigned char raw[];
  unsigned char* own = S::aligned(raw);
  unsigned char* walked = own + 2 * S::Own::kBytes;
  unsigned char* row_stages = walked + S::kStages * 2 * S::Walked::kBytes;

  const BlockPlace place(p.batch, p.key_heads, p.keys, S::kRows, false, block);
  const int queries = static_cast<int>(p.queries), keys = static_cast<int>(p.keys);
  const int size = static_cast<int>(p.size), value_size = static_cast<int>(p.value_size);
  const int first = static_cast<int>(place.row), row = first + S::warp_row();
  const int group_first = first + S::group() * kGroupRows;
  const int begin = p.causal ? first / S::kStep * S::kStep : 0;
  const int each = begin < queries ? (queries - begin + S::kStep - 1) / S::kStep : 0;  // steps of a head
  const int steps = each * static_cast<int>(p.group());
  const int64_t first_head = place.h * p.group();
  const auto fetch = [&](int step) {
    if (step >= steps) return;
    const int64_t h = first_head + step / each;
    const int from = begin + step % each * S::kStep, stage = step % S::kStages;
    unsigned char* tiles = walked + stage * 2 * S::Walked::kBytes;
    S::Walked::template load<S::kThreads>(tiles, p.query.of<const T>(place.b, h), p.query.row, from, queries,
                                          size, wide);
    S::Walked::template load<S::kThreads>(tiles + S::Walked::kBytes, p.dout.of<const T>(place.b, h),
                                          p.dout.row, from, queries, value_size, wide);
    if (threadIdx.x < S::kStep) {
      const int i = from + static_cast<int>(threadIdx.x);
      const Row* source = rows + (place.b * p.heads + h) * p.queries + i;
      gemm::copy_async<16>(row_stages + (stage * S::kStep + threadIdx.x) * sizeof(Row),
                           i < queries ? source : rows, i < queries ? 16 : 0);
    }
  };

  S::Own::template load<S::kThreads>(own, p.key.of<const T>(place.b, place.h), p.key.row, first, keys, size,
                                     wide);
  S::Own::template load<S::kThreads>(own + S::Own::kBytes, p.value.of<const T>(place.b, place.h), p.value.row,
                                     first, keys, value_size, wide);
  S::begin(fetch);
  float dkey[D / 8][4] = {}, dvalue[D / 8][4] = {};
  for (int step = 0; step < steps; ++step) {
    S::begin_step(step, fetch);
    const int from = begin + step % each * S::kStep, stage = step % S::kStages;
    if (p.causal && from + S::kStep - 1 < group_first) continue;  // for all of the warpgroup
    const unsigned char* query = walked + stage * 2 * S::Walked::kBytes;
    const unsigned char* dout = query + S::Walked::kBytes;
    const Row* query_rows = reinterpret_cast<const Row*>(row_stages) + stage * S::kStep;
    const auto row_at = [&](int e, int tile) { return query_rows[tile * 8 + column_of(e)]; };
    Mask<MASKING, true, T> mask(p, place.b, first_head + step / each);
    // Drawn before there are sums: all three take nearly all registers.
    unsigned bits = 0;
    if constexpr (DROP)
      bits = kept_bits<true, S::kTiles>(Draws(p, place.b, first_head + step / each), row, from);
    mask.read(row, from);
    // A row for each key.
    float weights[S::kTiles][4], slopes[S::kTiles][4];
    start_scores<T, S::kRows, S::kStep, D>(weights, own, S::group_row(), query);
    start_scores<T, S::kRows, S::kStep, D>(slopes, own + S::Own::kBytes, S::group_row(), dout);
    wait_sums<1>(weights);
    const bool whole =
        row + kWarpRows <= keys && from + S::kStep <= queries && (!p.causal || row + kWarpRows - 1 <= from);
    weigh(p, mask, weights, row, from, whole, row_at);
    Left rounded[S::kStep / 16];
    if constexpr (DROP) {
      float left[S::kTiles][4];
#pragma unroll
      for (int tile = 0; tile < S::kTiles; ++tile)
#pragma unroll
        for (int e = 0; e < 4; ++e) left[tile][e] = keeps(bits, tile, e) ? weights[tile][e] : 0.0f;
      pack_rows<T>(rounded, left);
    } else {
      pack_rows<T>(rounded, weights);
    }
    start_adding<T, S::kStep, D>(dvalue, rounded, dout);
    wait_sums<1>(slopes);
    slope<DROP>(weights, slopes, row_at, bits, static_cast<float>(p.kept));
    Left rounded_slopes[S::kStep / 16];
    pack_rows<T>(rounded_slopes, slopes);
    start_adding<T, S::kStep, D>(dkey, rounded_slopes, query);
    wait_sums<0>(dvalue);
    wait_sums<0>(dkey);
  }
  wait_copies<0>();
  store<T>(p.dkey, place.b, place.h, row, keys, size, static_cast<float>(p.scale), dkey);
  store<T>(p.dvalue, place.b, place.h, row, keys, value_size, DROP ? static_cast<float>(p.kept) : 1.0f,
           dvalue);
#endif
}

template <class S, bool DROP, Masking MASKING>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    attention_hopper_key_grad_kernel(const __grid_constant__ AttentionProblem p, const Row* rows, bool wide) {
  dependency_wait();
  key_gradients<S, DROP, MASKING>(p, rows, wide, blockIdx.x);
}

// Of chosen heads; mostly there are none, so few blocks look at all of them.
template <class S, Masking MASKING>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    attention_hopper_chosen_key_grad_kernel(const __grid_constant__ AttentionProblem p, const Row* rows,
                                            bool wide, int64_t blocks) {
  dependency_wait();
  if (!any_chosen(p)) return;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const BlockPlace place(p.batch, p.key_heads, p.keys, S::kRows, false, block);
    if (!p.chooses(place.b, place.h)) continue;
    key_gradients<S, false, MASKING>(p, rows, wide, block);
    __syncthreads();
  }
}

// dquery: a block has some queries, and walks along their keys.
template <class S, bool DROP, Masking MASKING>
__device__ __forceinline__ void query_gradients(const AttentionProblem& p, const Row* rows, bool wide,
                                                int64_t block) {
#if AICF_HAS_WARPGROUPS
  using T = typename S::T;
  constexpr int D = S::kSize;
  extern __shared__ unsigned char raw[];
  unsigned char* own = S::aligned(raw);
  unsigned char* walked = own + 2 * S::Own::kBytes;

  const BlockPlace place(p.batch, p.heads, p.queries, S::kRows, true, block);
  const int queries = static_cast<int>(p.queries), keys = static_cast<int>(p.keys);
  const int size = static_cast<int>(p.size), value_size = static_cast<int>(p.value_size);
  const int first = static_cast<int>(place.row), row = first + S::warp_row();
  const int last = first + S::kRows < queries ? first + S::kRows : queries;
  const int end = p.causal && last < keys ? last : keys, steps = (end + S::kStep - 1) / S::kStep;
  const int group_last = first + (S::group() + 1) * kGroupRows - 1;
  Mask<MASKING, false, T> mask(p, place.b, place.h);
  const T* keys_of = p.key.of<const T>(place.b, place.h / p.group());
  const T* values_of = p.value.of<const T>(place.b, place.h / p.group());
  const auto fetch = [&](int step) {
    if (step >= steps) return;
    unsigned char* stage = walked + step % S::kStages * 2 * S::Walked::kBytes;
    S::Walked::template load<S::kThreads>(stage, keys_of, p.key.row, step * S::kStep, keys, size, wide);
    S::Walked::template load<S::kThreads>(stage + S::Walked::kBytes, values_of, p.value.row, step * S::kStep,
                                          keys, value_size, wide);
  };
  Row own_rows[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = row + row_of(2 * half);
    own_rows[half] = {0, 0, 0};
    if (i < queries) own_rows[half] = rows[(place.b * p.heads + place.h) * p.queries + i];
  }
  const auto row_at = [&](int e, int) { return own_rows[e / 2]; };

  S::Own::template load<S::kThreads>(own, p.query.of<const T>(place.b, place.h), p.query.row, first, queries,
                                     size, wide);
  S::Own::template load<S::kThreads>(own + S::Own::kBytes, p.dout.of<const T>(place.b, place.h), p.dout.row,
                                     first, queries, value_size, wide);
  S::begin(fetch);
  float dquery[D / 8][4] = {};
  for (int step = 0; step < steps; ++step) {
    S::begin_step(step, fetch);
    const int from = step * S::kStep;
    if (p.causal && from > group_last) continue;  // for all of the warpgroup
    const unsigned char* key = walked + step % S::kStages * 2 * S::Walked::kBytes;
    unsigned bits = 0;
    if constexpr (DROP) bits = kept_bits<false, S::kTiles>(Draws(p, place.b, place.h), row, from);
    mask.read(row, from);
    float weights[S::kTiles][4], slopes[S::kTiles][4];
    start_scores<T, S::kRows, S::kStep, D>(weights, own, S::group_row(), key);
    start_scores<T, S::kRows, S::kStep, D>(slopes, own + S::Own::kBytes, S::group_row(),
                                           key + S::Walked::kBytes);
    wait_sums<1>(weights);
    const bool whole =
        row + kWarpRows <= queries && from + S::kStep <= keys && (!p.causal || from + S::kStep - 1 <= row);
    weigh(p, mask, weights, row, from, whole, row_at);
    wait_sums<0>(slopes);
    slope<DROP>(weights, slopes, row_at, bits, static_cast<float>(p.kept));
    Left rounded[S::kStep / 16];
    pack_rows<T>(rounded, slopes);
    start_adding<T, S::kStep, D>(dquery, rounded, key);
    wait_sums<0>(dquery);
  }
  wait_copies<0>();
  store<T>(p.dquery, place.b, place.h, row, queries, size, static_cast<float>(p.scale), dquery);
#endif
}

template <class S, bool DROP, Masking MASKING>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    attention_hopper_query_grad_kernel(const __grid_constant__ AttentionProblem p, const Row* rows,
                                       bool wide) {
  dependency_wait();
  query_gradients<S, DROP, MASKING>(p, rows, wide, blockIdx.x);
}

// Of chosen heads; mostly there are none, so few blocks look at all of them.
template <class S, Masking MASKING>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    attention_hopper_chosen_query_grad_kernel(const __grid_constant__ AttentionProblem p, const Row* rows,
                                              bool wide, int64_t blocks) {
  dependency_wait();
  if (!any_chosen(p)) return;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const BlockPlace place(p.batch, p.heads, p.queries, S::kRows, true, block);
    if (!p.chooses(place.b, place.h / p.group())) continue;
    query_gradients<S, false, MASKING>(p, rows, wide, block);
    __syncthreads();
  }
}

// With the rows of queries in the workspace.
template <bool CHOSEN, Masking MASKING>
Status gradients(const AttentionProblem& p, const LaunchContext& ctx) {
  return with_half_type(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto* rows = static_cast<const Row*>(ctx.workspace);
    const bool wide = rows_are_wide<T>({&p.query, &p.key, &p.value, &p.dout});
    const bool drops = p.random != nullptr;
    const auto run = [&](auto walk, int64_t heads, int64_t count, size_t shared, auto whole, auto chosen) {
      using S = decltype(walk);
      const int64_t blocks = p.batch * heads * ceil_div<int64_t>(count, S::kRows);
      if constexpr (CHOSEN) {
        constexpr int64_t kMost = 132 * S::kBlocks;
        return launch(ctx, dim3(static_cast<unsigned>(std::min(blocks, kMost))), S::kThreads, shared, chosen,
                      p, rows, wide, blocks);
      } else {
        return launch(ctx, dim3(static_cast<unsigned>(blocks)), S::kThreads, shared, whole, p, rows, wide);
      }
    };
    const auto key_grad = [&](auto walk) {
      using S = decltype(walk);
      return run(walk, p.key_heads, p.keys, kKeyShared<S>,
                 drops ? attention_hopper_key_grad_kernel<S, true, MASKING>
                       : attention_hopper_key_grad_kernel<S, false, MASKING>,
                 attention_hopper_chosen_key_grad_kernel<S, MASKING>);
    };
    // Three warpgroups a block, unless most of the last one's rows would be none. The bits of a mask need
    // registers that three do not have.
    const int64_t twos = ceil_div<int64_t>(p.keys, 128) * 128, threes = ceil_div<int64_t>(p.keys, 192) * 192;
    if (p.batch * p.key_heads * p.keys > 0) {
      bool three = false;
      if constexpr (MASKING == Masking::None) {
        three = 4 * threes <= 5 * twos;
        if (three) AICF_TRY((with_walk<T, 3, 1, 2, 3>(p, key_grad)));
      }
      if (!three) AICF_TRY((with_walk<T, 2, 1, 2, 3>(p, key_grad)));
    }
    if (p.rows() == 0) return Status::ok();
    return with_walk<T, 2, 2, 3, 3>(p, [&](auto walk) {
      using S = decltype(walk);
      return run(walk, p.heads, p.queries, kQueryShared<S>,
                 drops ? attention_hopper_query_grad_kernel<S, true, MASKING>
                       : attention_hopper_query_grad_kernel<S, false, MASKING>,
                 attention_hopper_chosen_query_grad_kernel<S, MASKING>);
    });
  });
}

}  // namespace
}  // namespace aicf
