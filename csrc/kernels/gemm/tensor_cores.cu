// gemm in f16 and bf16 on tensor cores, sums in f32: a block computes a BM x BN tile of the result, a warp
// WM x WN of it.
//
// The three tile sizes give the same bits: each sum runs over k in steps of 16 from its start to its end.
#include <mma.h>

#include "kernels/gemm/launch.h"
#include "kernels/gemm/tile.cuh"

namespace aicf {
namespace {

using namespace cuda;

constexpr int kStep = 16;  // rows, columns and k of one matrix instruction

template <int BM_, int BN_, int BK_, int WM_, int WN_, int STAGES_>
struct Shape {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_, STAGES = STAGES_;
  static constexpr int kThreads = (BM / WM) * (BN / WN) * kWarp;
  static constexpr int kSumPitch = BN + 4;
};

// An operand's tile and its matrix fragment; EXTENT is BM or BN.
template <class T, bool K_MAJOR, int EXTENT, int BK>
struct Operand {
  using Tile = std::conditional_t<K_MAJOR, Window<T, EXTENT, BK>, Window<T, BK, EXTENT>>;
  static __device__ __forceinline__ const T* at(const T* tile, int position, int k) {
    return tile + (K_MAJOR ? position * Tile::kPitch + k : k * Tile::kPitch + position);
  }
};

template <class T, class S, bool TRANS_A, bool TRANS_B>
struct Layout {
  using A = Operand<T, !TRANS_A, S::BM, S::BK>;
  using B = Operand<T, TRANS_B, S::BN, S::BK>;
  using FragmentA =
      nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, kStep, kStep, kStep, T,
                             std::conditional_t<TRANS_A, nvcuda::wmma::col_major, nvcuda::wmma::row_major>>;
  using FragmentB =
      nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, kStep, kStep, kStep, T,
                             std::conditional_t<TRANS_B, nvcuda::wmma::col_major, nvcuda::wmma::row_major>>;
  using Sums = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, kStep, kStep, kStep, float>;
  static constexpr int kStage = A::Tile::kElements + B::Tile::kElements;
  static constexpr size_t kStages = S::STAGES * kStage * sizeof(T);
  static constexpr size_t kSums = (S::BM * S::kSumPitch + S::kThreads) * sizeof(float);
  static constexpr size_t kShared = kStages > kSums ? kStages : kSums;  // the stages, and later the sums
};

template <class T, class S, bool TRANS_A, bool TRANS_B, int W>
__global__ void __launch_bounds__(S::kThreads, 1)
    gemm_tensor_core_kernel(const __grid_constant__ GemmProblem p) {
  using L = Layout<T, S, TRANS_A, TRANS_B>;
  using TileA = typename L::A::Tile;
  using TileB = typename L::B::Tile;
  extern __shared__ __align__(128) unsigned char shared[];
  T* stages = reinterpret_cast<T*>(shared);
  float* out = reinterpret_cast<float*>(shared);

  const int64_t across = p.n > 0 ? (p.n + S::BN - 1) / S::BN : 1;
  const int64_t row = blockIdx.x / across * S::BM, column = blockIdx.x % across * S::BN;
  const int warp = threadIdx.x / kWarp;
  const int warp_m = warp / (S::BN / S::WN) * S::WM, warp_n = warp % (S::BN / S::WN) * S::WN;
  const int64_t steps = (p.k + S::BK - 1) / S::BK;
  const bool sums_rows = p.bias_grad && column == 0;

  for (int64_t batch = blockIdx.z; batch < p.batch; batch += gridDim.z) {
    const Product product = p.product(batch);
    const T *a = p.a.of<const T>(product), *b = p.b.of<const T>(product);
    auto load = [&](int64_t step) {
      if (step < steps)
        load_stage<TileA, TileB, TRANS_A, TRANS_B, S::kThreads, W>(p, stages + step % S::STAGES * L::kStage,
                                                                   a, b, row, column, step * S::BK);
      commit_copies();  // an empty group too: wait_copies counts groups
    };

    typename L::Sums sums[S::WM / kStep][S::WN / kStep];
#pragma unroll
    for (int i = 0; i < S::WM / kStep; ++i)
#pragma unroll
      for (int j = 0; j < S::WN / kStep; ++j) nvcuda::wmma::fill_fragment(sums[i][j], 0.0f);
    RowSums<T, S::BM, S::BK, S::kThreads> row_sums;

#pragma unroll
    for (int s = 0; s < S::STAGES - 1; ++s) load(s);
    for (int64_t step = 0; step < steps; ++step) {
      wait_copies<S::STAGES - 2>();
      __syncthreads();             // this step's tiles are there for all, and the last step's are done with
      load(step + S::STAGES - 1);  // into the place of the last step's
      const T* tile_a = stages + step % S::STAGES * L::kStage;
      const T* tile_b = tile_a + TileA::kElements;
      if (sums_rows) row_sums.template add<!TRANS_A>(tile_a, TileA::kPitch);
#pragma unroll
      for (int k = 0; k < S::BK; k += kStep) {
        typename L::FragmentA x[S::WM / kStep];
        typename L::FragmentB y[S::WN / kStep];
#pragma unroll
        for (int i = 0; i < S::WM / kStep; ++i)
          nvcuda::wmma::load_matrix_sync(x[i], L::A::at(tile_a, warp_m + i * kStep, k), TileA::kPitch);
#pragma unroll
        for (int j = 0; j < S::WN / kStep; ++j)
          nvcuda::wmma::load_matrix_sync(y[j], L::B::at(tile_b, warp_n + j * kStep, k), TileB::kPitch);
#pragma unroll
        for (int i = 0; i < S::WM / kStep; ++i)
#pragma unroll
          for (int j = 0; j < S::WN / kStep; ++j) nvcuda::wmma::mma_sync(sums[i][j], x[i], y[j], sums[i][j]);
      }
    }

    wait_copies<0>();
    __syncthreads();  // the stages become the sums
#pragma unroll
    for (int i = 0; i < S::WM / kStep; ++i)
#pragma unroll
      for (int j = 0; j < S::WN / kStep; ++j)
        nvcuda::wmma::store_matrix_sync(out + (warp_m + i * kStep) * S::kSumPitch + warp_n + j * kStep,
                                        sums[i][j], S::kSumPitch, nvcuda::wmma::mem_row_major);
    __syncthreads();
    finish_tile<T, S::BM, S::BN, 1, S::kThreads, W>(p, out, S::kSumPitch, product, row, column);
    if (sums_rows) row_sums.store(p, out + S::BM * S::kSumPitch, row);
    __syncthreads();  // before the next product of the batch overwrites the sums
  }
}

template <class T, class S, bool TRANS_A, bool TRANS_B, int W>
Status run(const GemmProblem& p, const LaunchContext& ctx) {
  return launch(ctx, tile_grid(p, S::BM, S::BN), S::kThreads, Layout<T, S, TRANS_A, TRANS_B>::kShared,
                gemm_tensor_core_kernel<T, S, TRANS_A, TRANS_B, W>, p);
}

template <class T, class S, int W>
Status run(const GemmProblem& p, const LaunchContext& ctx) {
  if (p.trans_a) return p.trans_b ? run<T, S, true, true, W>(p, ctx) : run<T, S, true, false, W>(p, ctx);
  return p.trans_b ? run<T, S, false, true, W>(p, ctx) : run<T, S, false, false, W>(p, ctx);
}

template <class T, int W>
Status run(const TiledGemm& gemm, const LaunchContext& ctx) {
  switch (gemm.side) {
    case 128:
      return run<T, Shape<128, 128, 32, 64, 32, 3>, W>(gemm.problem, ctx);
    case 64:
      return run<T, Shape<64, 64, 32, 32, 32, 3>, W>(gemm.problem, ctx);
    default:
      return run<T, Shape<32, 32, 64, 16, 16, 3>, W>(gemm.problem, ctx);
  }
}

template <class T>
Status run(const TiledGemm& gemm, const LaunchContext& ctx) {
  const GemmProblem& p = gemm.problem;
  if (p.batch * p.m == 0) return Status::ok();
  return rows_are_aligned<T>(p) ? run<T, kWidest<T>>(gemm, ctx) : run<T, 1>(gemm, ctx);
}

}  // namespace

Status gemm_tc_cuda(const TiledGemm& gemm, const LaunchContext& ctx) {
  return gemm.problem.dtype == DType::BF16 ? run<__nv_bfloat16>(gemm, ctx) : run<__half>(gemm, ctx);
}

}  // namespace aicf
