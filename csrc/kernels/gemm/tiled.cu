// gemm in f32 through shared memory and registers: a block computes a BM x BN tile of the result, a thread
// TM x TN elements of it, several tiles of k are on their way at any time.
//
// GROUPS > 1 splits each tile of k over groups of warps that keep sums of their own, added in order at the
// end: small results have few tiles, and one tile alone would leave its multiprocessor waiting.
#include "kernels/gemm/launch.h"
#include "kernels/gemm/tile.cuh"

namespace aicf {
namespace {

using namespace cuda;

// The elements of an operand tile that one thread multiplies, for four steps of k. EXTENT is BM or BN,
// COUNT how many of them a thread has, ACROSS the number of threads along the extent.
template <bool K_MAJOR, int EXTENT, int BK, int COUNT>
struct Fragment;

// Rows along k: elements apart by ACROSS, so that neighbouring threads read neighbouring rows (no bank
// conflicts).
template <int EXTENT, int BK, int COUNT>
struct Fragment<true, EXTENT, BK, COUNT> {
  using Tile = Window<float, EXTENT, BK>;
  static constexpr int kAcross = EXTENT / COUNT;
  static __device__ __forceinline__ int position(int thread, int j) { return thread + j * kAcross; }
  static __device__ __forceinline__ void load(float (&out)[4][COUNT], const float* tile, int k, int thread) {
#pragma unroll
    for (int j = 0; j < COUNT; ++j) {
      const Vec<float, 4> v =
          *reinterpret_cast<const Vec<float, 4>*>(tile + position(thread, j) * Tile::kPitch + k);
#pragma unroll
      for (int l = 0; l < 4; ++l) out[l][j] = v.at[l];
    }
  }
};

// Rows along the extent: vectors of neighbours, apart by a vector for each thread.
template <int EXTENT, int BK, int COUNT>
struct Fragment<false, EXTENT, BK, COUNT> {
  using Tile = Window<float, BK, EXTENT>;
  static constexpr int kAcross = EXTENT / COUNT;
  static constexpr int kVector = COUNT < 4 ? COUNT : 4;
  static __device__ __forceinline__ int position(int thread, int j) {
    return (j / kVector * kAcross + thread) * kVector + j % kVector;
  }
  static __device__ __forceinline__ void load(float (&out)[4][COUNT], const float* tile, int k, int thread) {
    using Vector = Vec<float, kVector>;
#pragma unroll
    for (int l = 0; l < 4; ++l)
#pragma unroll
      for (int j = 0; j < COUNT; j += kVector) {
        const Vector v =
            *reinterpret_cast<const Vector*>(tile + (k + l) * Tile::kPitch + position(thread, j));
#pragma unroll
        for (int w = 0; w < kVector; ++w) out[l][j + w] = v.at[w];
      }
  }
};

template <int BM_, int BN_, int BK_, int TM_, int TN_, int GROUPS_, int STAGES_>
struct Shape {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, TM = TM_, TN = TN_, GROUPS = GROUPS_, STAGES = STAGES_;
  static constexpr int kGroupThreads = (BM / TM) * (BN / TN);
  static constexpr int kThreads = kGroupThreads * GROUPS;
  static constexpr int kGroupK = BK / GROUPS;
  static constexpr int kSumPitch = BN + 4;
  static_assert(kGroupK % 4 == 0, "a fragment holds four steps of k");
};

template <class S, bool TRANS_A, bool TRANS_B, int W>
__global__ void __launch_bounds__(S::kThreads, 1) gemm_tiled_kernel(const __grid_constant__ GemmProblem p) {
  using FragmentA = Fragment<!TRANS_A, S::BM, S::BK, S::TM>;
  using FragmentB = Fragment<TRANS_B, S::BN, S::BK, S::TN>;
  using TileA = typename FragmentA::Tile;
  using TileB = typename FragmentB::Tile;
  constexpr int kStage = TileA::kElements + TileB::kElements;
  constexpr int kSums = S::GROUPS * S::BM * S::kSumPitch + S::kThreads;
  constexpr int kShared = S::STAGES * kStage > kSums ? S::STAGES * kStage : kSums;
  __shared__ __align__(16) float shared[kShared];  // the stages, and later the sums

  const int64_t across = p.n > 0 ? (p.n + S::BN - 1) / S::BN : 1;
  const int64_t row = blockIdx.x / across * S::BM, column = blockIdx.x % across * S::BN;
  const int group = threadIdx.x / S::kGroupThreads, member = threadIdx.x % S::kGroupThreads;
  const int thread_m = member / (S::BN / S::TN), thread_n = member % (S::BN / S::TN);
  const int64_t steps = (p.k + S::BK - 1) / S::BK;
  const bool sums_rows = p.bias_grad && column == 0;

  for (int64_t batch = blockIdx.z; batch < p.batch; batch += gridDim.z) {
    const Product product = p.product(batch);
    const float *a = p.a.of<const float>(product), *b = p.b.of<const float>(product);
    auto load = [&](int64_t step) {
      if (step < steps)
        load_stage<TileA, TileB, TRANS_A, TRANS_B, S::kThreads, W>(p, shared + step % S::STAGES * kStage, a,
                                                                   b, row, column, step * S::BK);
      commit_copies();  // an empty group too: wait_copies counts groups
    };

    float sums[S::TM][S::TN] = {};
    RowSums<float, S::BM, S::BK, S::kThreads> row_sums;
#pragma unroll
    for (int s = 0; s < S::STAGES - 1; ++s) load(s);
    for (int64_t step = 0; step < steps; ++step) {
      wait_copies<S::STAGES - 2>();
      __syncthreads();             // this step's tiles are there for all, and the last step's are done with
      load(step + S::STAGES - 1);  // into the place of the last step's
      const float* tile_a = shared + step % S::STAGES * kStage;
      const float* tile_b = tile_a + TileA::kElements;
      if (sums_rows) row_sums.template add<!TRANS_A>(tile_a, TileA::kPitch);
#pragma unroll
      for (int k = 0; k < S::kGroupK; k += 4) {
        float x[4][S::TM], y[4][S::TN];
        FragmentA::load(x, tile_a, group * S::kGroupK + k, thread_m);
        FragmentB::load(y, tile_b, group * S::kGroupK + k, thread_n);
#pragma unroll
        for (int l = 0; l < 4; ++l)
#pragma unroll
          for (int i = 0; i < S::TM; ++i)
#pragma unroll
            for (int j = 0; j < S::TN; ++j) sums[i][j] = fmaf(x[l][i], y[l][j], sums[i][j]);
      }
    }

    wait_copies<0>();
    __syncthreads();  // the stages become the sums
    float* own = shared + group * S::BM * S::kSumPitch;
#pragma unroll
    for (int i = 0; i < S::TM; ++i)
#pragma unroll
      for (int j = 0; j < S::TN; ++j)
        own[FragmentA::position(thread_m, i) * S::kSumPitch + FragmentB::position(thread_n, j)] = sums[i][j];
    __syncthreads();
    finish_tile<float, S::BM, S::BN, S::GROUPS, S::kThreads, W>(p, shared, S::kSumPitch, product, row,
                                                                column);
    if (sums_rows) row_sums.store(p, shared + S::GROUPS * S::BM * S::kSumPitch, row);
    __syncthreads();  // before the next product of the batch overwrites the sums
  }
}

template <class S, int W>
Status run(const GemmProblem& p, const LaunchContext& ctx) {
  auto* kernel =
      p.trans_a ? (p.trans_b ? gemm_tiled_kernel<S, true, true, W> : gemm_tiled_kernel<S, true, false, W>)
                : (p.trans_b ? gemm_tiled_kernel<S, false, true, W> : gemm_tiled_kernel<S, false, false, W>);
  return launch(ctx, tile_grid(p, S::BM, S::BN), S::kThreads, 0, kernel, p);
}

template <class S>
Status run(const GemmProblem& p, const LaunchContext& ctx) {
  if (p.batch * p.m == 0) return Status::ok();
  return rows_are_aligned<float>(p) ? run<S, 4>(p, ctx) : run<S, 1>(p, ctx);
}

}  // namespace

Status gemm_tiled_64x64_cuda(const GemmProblem& p, const LaunchContext& ctx) {
  return run<Shape<64, 64, 16, 8, 4, 1, 3>>(p, ctx);
}

Status gemm_tiled_32x32_cuda(const GemmProblem& p, const LaunchContext& ctx) {
  return run<Shape<32, 32, 32, 4, 4, 4, 4>>(p, ctx);
}

}  // namespace aicf
