// The gradient of attention for heads that are one tile: the scores once, all three results from them.
#include "kernels/attention/launch.h"
#include "kernels/attention/tile/tile.cuh"

namespace aicf {
namespace cuda {
namespace {

template <class S>
constexpr int kGradElements = 4 * S::Operand::kElements + 2 * S::Scores::kElements;

// The rows of a warp in shared memory, 16 bits each.
template <class S>
__device__ __forceinline__ void write_rows(typename S::T* shared, const typename S::Products& x) {
  shared += row_of(0) * S::kScorePitch + column_of(0);
#pragma unroll
  for (int tile = 0; tile < S::kTiles; ++tile)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<unsigned*>(shared + half * 8 * S::kScorePitch + tile * 8) =
          pack<typename S::T>(x[tile][2 * half], x[tile][2 * half + 1]);
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kPadded <= 64 ? 4 : 2)
    attention_tile_grad_kernel(const __grid_constant__ AttentionProblem p, bool wide, bool wide_results) {
  dependency_wait();
  using T = typename S::T;
  extern __shared__ __align__(128) unsigned char shared[];
  const HeadOf<S> of(p);
  const int queries = static_cast<int>(p.queries), keys = static_cast<int>(p.keys),
            size = static_cast<int>(p.size), value_size = static_cast<int>(p.value_size);
  T* query = reinterpret_cast<T*>(shared) + of.slot * kGradElements<S>;
  T* key = query + S::Operand::kElements;
  T* value = key + S::Operand::kElements;
  T* dout = value + S::Operand::kElements;
  T* left = dout + S::Operand::kElements;
  T* dscores = left + S::Scores::kElements;
  load_tile<S>(query, p.query, of.b, of.h, of.thread, queries, size, wide);
  load_tile<S>(key, p.key, of.b, of.h, of.thread, keys, size, wide);
  commit_copies();
  load_tile<S>(value, p.value, of.b, of.h, of.thread, keys, value_size, wide);
  load_tile<S>(dout, p.dout, of.b, of.h, of.thread, queries, value_size, wide);
  commit_copies();
  const TileRows rows(p, of.b, of.h, of.row);

  wait_copies<1>();
  __syncthreads();  // queries and keys are there for all
  typename S::Products weights, slopes;
  multiply_rows<S::kPadded, S::kPitch>(weights, query + of.row * S::kPitch, key);
  wait_copies<0>();
  __syncthreads();  // the others too
  multiply_rows<S::kPadded, S::kPitch>(slopes, dout + of.row * S::kPitch, value);
  differentiate_tile<S>(p, of.b, of.h, of.row, rows, weights, slopes);
  write_rows<S>(left + of.row * S::kScorePitch, weights);
  write_rows<S>(dscores + of.row * S::kScorePitch, slopes);

  const float scale = static_cast<float>(p.scale);
  const auto rounded = [](const typename S::Results& sums, float factor) {
    return Rounded<S>(sums, factor, factor);
  };
  const Rounded<S> dquery = [&] {
    typename S::Results sums = {};
    add_product<S::kPitch>(sums, slopes, key);
    return rounded(sums, scale);
  }();
  __syncthreads();  // what all queries have left of each key, and their slopes
  const Rounded<S> dvalue = [&] {
    typename S::Results sums = {};
    add_transposed<S>(sums, left + of.row, dout);
    return rounded(sums, 1.0f);
  }();
  const Rounded<S> dkey = [&] {
    typename S::Results sums = {};
    add_transposed<S>(sums, dscores + of.row, query);
    return rounded(sums, scale);
  }();
  __syncthreads();  // the operands are done with
  if (!of.there) return;
  const int own = of.row * S::kPitch;
  dquery.store(query + own, p.dquery, of.b, of.h, of.row, queries, size, wide_results);
  dkey.store(key + own, p.dkey, of.b, of.h, of.row, keys, size, wide_results);
  dvalue.store(value + own, p.dvalue, of.b, of.h, of.row, keys, value_size, wide_results);
}

}  // namespace
}  // namespace cuda

using namespace cuda;

Status attention_grad_tile(const AttentionProblem& p, const LaunchContext& ctx) {
  if (p.batch * p.heads == 0) return Status::ok();
  return with_tiles(p, [&](auto tiles) {
    using S = decltype(tiles);
    using T = typename S::T;
    return launch(ctx, blocks_of<S>(p), S::kThreads, S::kHeads * kGradElements<S> * sizeof(T),
                  attention_tile_grad_kernel<S>, p, rows_are_wide<T>({&p.query, &p.key, &p.value, &p.dout}),
                  rows_are_stored_wide<T>({&p.dquery, &p.dkey, &p.dvalue}, {p.size, p.value_size}));
  });
}

}  // namespace aicf
