// The gradient of a mask of heads that are one tile. As many threads as a head has add up the gradients of
// its scores over some of the images and heads that share a matrix: a part. Several parts are added in order.
#include "kernels/attention/launch.h"
#include "kernels/attention/mask_gradient.cuh"
#include "kernels/attention/tile/tile.cuh"

namespace aicf {
namespace cuda {
namespace {

// Where a head's operands fit twice, those of the next are copied meanwhile.
template <class S>
constexpr int kStages = S::kPadded <= 64 ? 2 : 1;
template <class S>
constexpr int kMaskElements = 4 * S::Operand::kElements;  // of one stage

// sums: where the parts go, [parts, matrices, queries, keys]; null with one part, which goes to dmask.
template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kPadded <= 64 ? 3 : 2)
    attention_tile_mask_kernel(const __grid_constant__ AttentionProblem p, float* sums, MaskParts parts,
                               bool wide) {
  dependency_wait();
  using T = typename S::T;
  extern __shared__ __align__(128) unsigned char shared[];
  const HeadOf<S> place(p, 0);
  const int queries = static_cast<int>(p.queries), keys = static_cast<int>(p.keys),
            size = static_cast<int>(p.size), value_size = static_cast<int>(p.value_size);
  T* const own = reinterpret_cast<T*>(shared) + place.slot * kStages<S> * kMaskElements<S>;
  const MaskMatrix of(p, blockIdx.x);
  const int64_t part = static_cast<int64_t>(blockIdx.y) * S::kHeads + place.slot;
  const int64_t begin = part * parts.shared, end = min(begin + parts.shared, of.count);
  const auto load = [&](int64_t turn) {
    if (turn < parts.shared && begin + turn < end) {
      const int64_t b = of.image(begin + turn), h = of.head(begin + turn), group = h / p.group();
      T* to = own + turn % kStages<S> * kMaskElements<S>;
      load_tile<S>(to, p.query, b, h, place.thread, queries, size, wide);
      load_tile<S>(to + S::Operand::kElements, p.key, b, group, place.thread, keys, size, wide);
      load_tile<S>(to + 2 * S::Operand::kElements, p.value, b, group, place.thread, keys, value_size, wide);
      load_tile<S>(to + 3 * S::Operand::kElements, p.dout, b, h, place.thread, queries, value_size, wide);
    }
    commit_copies();
  };

  typename S::Products total = {};
  if constexpr (kStages<S> == 2) load(0);
  for (int64_t turn = 0; turn < parts.shared; ++turn) {  // as many for all threads
    load(turn + kStages<S> - 1);
    const bool there = begin + turn < end;
    const int64_t b = there ? of.image(begin + turn) : 0, h = there ? of.head(begin + turn) : 0;
    const TileRows rows(p, b, h, place.row);
    wait_copies<kStages<S> - 1>();
    __syncthreads();
    if (there) {
      const T* query = own + turn % kStages<S> * kMaskElements<S>;
      const T *key = query + S::Operand::kElements, *value = key + S::Operand::kElements,
              *dout = value + S::Operand::kElements;
      typename S::Products weights, slopes;
      multiply_rows<S::kPadded, S::kPitch>(weights, query + place.row * S::kPitch, key);
      multiply_rows<S::kPadded, S::kPitch>(slopes, dout + place.row * S::kPitch, value);
      differentiate_tile<S>(p, b, h, place.row, rows, weights, slopes);
#pragma unroll
      for (int tile = 0; tile < S::kTiles; ++tile)
#pragma unroll
        for (int e = 0; e < 4; ++e) total[tile][e] += slopes[tile][e];
    }
    __syncthreads();  // this stage is done with
  }
  if (part >= parts.count) return;

  const int64_t matrices = p.dmask_images * p.dmask_heads;
#pragma unroll
  for (int tile = 0; tile < S::kTiles; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = place.row + row_of(e), j = tile * 8 + column_of(e);
      if (i >= queries || j >= keys) continue;
      const int64_t at = (blockIdx.x * p.queries + i) * p.keys + j;
      if (sums != nullptr)
        sums[part * matrices * p.queries * p.keys + at] = total[tile][e];
      else if (p.dmask_wide)
        static_cast<float*>(p.dmask)[at] = total[tile][e];
      else
        static_cast<T*>(p.dmask)[at] = narrow<T>(total[tile][e]);
    }
}

}  // namespace
}  // namespace cuda

using namespace cuda;

Status attention_mask_grad_tile(const AttentionProblem& p, const LaunchContext& ctx) {
  if (p.dmask_images * p.dmask_heads * p.queries * p.keys == 0) return Status::ok();
  return with_tiles(p, [&](auto tiles) {
    using S = decltype(tiles);
    using T = typename S::T;
    const MaskParts parts(p);
    auto* sums = parts.count > 1 ? static_cast<float*>(ctx.workspace) : nullptr;
    const dim3 grid(static_cast<unsigned>(p.dmask_images * p.dmask_heads),
                    static_cast<unsigned>(ceil_div<int64_t>(parts.count, S::kHeads)));
    AICF_TRY(launch(ctx, grid, S::kThreads, kStages<S> * S::kHeads * kMaskElements<S> * sizeof(T),
                    attention_tile_mask_kernel<S>, p, sums, parts,
                    rows_are_wide<T>({&p.query, &p.key, &p.value, &p.dout})));
    return sums == nullptr ? Status::ok() : add_mask_parts<T>(p, ctx, sums, parts.count);
  });
}

}  // namespace aicf
