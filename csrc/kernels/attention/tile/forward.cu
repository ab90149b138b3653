// Attention, forward, of heads that are one tile.
#include "kernels/attention/forward.cuh"
#include "kernels/attention/launch.h"
#include "kernels/attention/tile/tile.cuh"

namespace aicf {
namespace cuda {
namespace {

template <class S>
constexpr size_t kTileShared = 3 * S::kHeads * S::Operand::kElements * sizeof(typename S::T);

template <class S>
__global__ void __launch_bounds__(S::kThreads)
    attention_tile_kernel(const __grid_constant__ AttentionProblem p, bool wide, bool wide_results) {
  dependency_wait();
  using T = typename S::T;
  extern __shared__ __align__(128) unsigned char shared[];
  const HeadOf<S> of(p);
  const int queries = static_cast<int>(p.queries), keys = static_cast<int>(p.keys),
            size = static_cast<int>(p.size), value_size = static_cast<int>(p.value_size);
  const int64_t group = of.h / p.group();
  T* query = reinterpret_cast<T*>(shared) + of.slot * 3 * S::Operand::kElements;
  T* key = query + S::Operand::kElements;
  T* value = key + S::Operand::kElements;
  load_tile<S>(query, p.query, of.b, of.h, of.thread, queries, size, wide);
  load_tile<S>(key, p.key, of.b, group, of.thread, keys, size, wide);
  commit_copies();
  load_tile<S>(value, p.value, of.b, group, of.thread, keys, value_size, wide);
  commit_copies();

  wait_copies<1>();
  __syncthreads();  // queries and keys are there for all
  typename S::Products scores;
  T* own = query + of.row * S::kPitch;
  multiply_rows<S::kPadded, S::kPitch>(scores, own, key);
  const Bounds<false> bounds(p, of.row, 0);
  Scoring<T>(p, of.b, of.h).score(scores, bounds);
#pragma unroll
  for (int tile = 0; tile < S::kTiles; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (bounds.hides(tile, e)) scores[tile][e] = minus_infinity<float>();
  typename S::Results sums = {};
  RunningRows<T> rows;
  rows.add(scores, sums);
  if (p.random != nullptr) drop(scores, kept_bits<false, S::kTiles>(Draws(p, of.b, of.h), of.row, 0));
  wait_copies<0>();
  __syncthreads();  // values too
  add_product<S::kPitch>(sums, scores, value);
  if (!of.there) return;

  const int64_t rows_before = (of.b * p.heads + of.h) * p.queries;
  float factors[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = reduce_row<Add>(rows.total[half]), total = sum == 0 ? 1.0f : sum;
    const int i = of.row + row_of(2 * half);
    factors[half] = static_cast<float>(p.kept) / total;
    if (i >= queries || lane() % 4 != 0) continue;
    static_cast<float*>(p.largest)[rows_before + i] = largest_kept(rows.largest[half], sum);
    static_cast<float*>(p.total)[rows_before + i] = total;
  }
  Rounded<S>(sums, factors[0], factors[1])
      .store(own, p.out, of.b, of.h, of.row, queries, value_size, wide_results);
}

}  // namespace
}  // namespace cuda

using namespace cuda;

Status attention_tile(const AttentionProblem& p, const LaunchContext& ctx) {
  if (p.rows() == 0) return Status::ok();
  return with_tiles(p, [&](auto tiles) {
    using S = decltype(tiles);
    using T = typename S::T;
    return launch(ctx, blocks_of<S>(p), S::kThreads, kTileShared<S>, attention_tile_kernel<S>, p,
                  rows_are_wide<T>({&p.query, &p.key, &p.value}),
                  rows_are_stored_wide<T>({&p.out}, {p.value_size}));
  });
}

}  // namespace aicf
