// The product for small results in f32: groups of threads multiply Shape::TM x Shape::TN elements in
// registers.
#pragma once
#include "kernels/gemm/device/panels.cuh"
#include "kernels/gemm/device/registers.cuh"

namespace aicf::gemm {

// Those of a thread: its group takes every kGroups-th four of k.
template <class Shape, bool TRANS_A, bool TRANS_B>
struct RegisterPanelSums {
  using Shared = SharedMemory<Shape, TRANS_A, TRANS_B>;
  using FragmentA = Fragment<typename Shared::A, !TRANS_A, Shape::BM, Shape::TM>;
  using FragmentB = Fragment<typename Shared::B, TRANS_B, Shape::BN, Shape::TN>;
  static constexpr int TM = Shape::TM, TN = Shape::TN, kAcross = Shape::BN / TN;

  float sums[TM][TN] = {};

  __device__ __forceinline__ static int thread_m() {
    return static_cast<int>(threadIdx.x % Shape::kGroupThreads / kAcross);
  }
  __device__ __forceinline__ static int thread_n() { return static_cast<int>(threadIdx.x % kAcross); }

  __device__ __forceinline__ void add(const float* panel, int length) {
    const int group = static_cast<int>(threadIdx.x / Shape::kGroupThreads);
#pragma unroll
    for (int first = 0; first < Shape::BK; first += 4 * Shape::kGroups) {
      const int k = first + 4 * group;
      if (k >= length) break;
      float x[4][TM], y[4][TN];
      FragmentA::read(x, panel, k, thread_m());
      FragmentB::read(y, panel + Shared::A::kElements, k, thread_n());
#pragma unroll
      for (int l = 0; l < 4; ++l)
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
          for (int j = 0; j < TN; ++j) sums[i][j] = fmaf(x[l][i], y[l][j], sums[i][j]);
    }
  }

  // Adds those of the warp's groups, by halves, and writes them, each group its share of the rows.
  __device__ __forceinline__ void write(float* out) {
    int first = 0, kept = TM;
#pragma unroll
    for (int distance = 16; distance >= Shape::kGroupThreads; distance /= 2) {
      const bool upper = (threadIdx.x & distance) != 0;
      kept /= 2;
      first += upper ? kept : 0;
#pragma unroll
      for (int i = 0; i < TM / 2; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) {
          if (i >= kept) continue;
          const float own = upper ? sums[i + kept][j] : sums[i][j];
          const float others = upper ? sums[i][j] : sums[i + kept][j];
          sums[i][j] = own + __shfl_xor_sync(0xffffffffu, others, distance);
        }
    }
    float* tile = out + threadIdx.x / 32 * Shape::BM * Shape::kSumPitch;
#pragma unroll
    for (int i = 0; i < TM * Shape::kGroupThreads / 32; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j)
        tile[FragmentA::position(thread_m(), first + i) * Shape::kSumPitch +
             FragmentB::position(thread_n(), j)] = sums[i][j];
  }
};

// As TensorCoreProduct; Format is F32, WZ at most 4.
template <class Format, class Shape, bool TRANS_A, bool TRANS_B, int WA, int WB, int WZ>
struct RegisterPanelProduct
    : PanelProduct<RegisterPanelSums<Shape, TRANS_A, TRANS_B>, Format, Shape, TRANS_A, TRANS_B, WA, WB, WZ> {
};

// The sums of a result of one column, as the gradient of a bias is: in f64, for they cost no more than what
// is read. So numbers that cancel each other leave nothing, which an update would divide by its own size.
template <class Shape, bool TRANS_A, bool TRANS_B>
struct RegisterColumnSums {
  using Shared = SharedMemory<Shape, TRANS_A, TRANS_B>;
  using TileA = typename Shared::A;
  using TileB = typename Shared::B;
  static constexpr int kShares = Shape::kThreads / Shape::BM;  // of a row's k, in turns
  static_assert(Shape::BK % kShares == 0, "every thread sums as much of a row");

  double sum = 0;

  __device__ __forceinline__ static int row() { return static_cast<int>(threadIdx.x % Shape::BM); }

  __device__ __forceinline__ void add(const float* panel, int length) {
    const float* column = panel + TileA::kElements;
#pragma unroll
    for (int first = 0; first < Shape::BK; first += kShares) {
      const int k = first + static_cast<int>(threadIdx.x / Shape::BM);
      if (k >= length) break;
      sum = fma(static_cast<double>(panel[row() * TileA::kAlongExtent + k * TileA::kAlongK]),
                static_cast<double>(column[k * TileB::kAlongK]), sum);
    }
  }

  // The column is that of the first part's tile; those of the others are zeros.
  __device__ __forceinline__ void write(float* out) const {
    double* shares = reinterpret_cast<double*>(out);
    shares[threadIdx.x] = sum;
    __syncthreads();
    double total = 0;
    if (threadIdx.x < Shape::BM) {
#pragma unroll
      for (int share = 0; share < kShares; ++share) total += shares[share * Shape::BM + row()];
    }
    __syncthreads();  // the shares become the column
    for (int part = 0; part < Shape::kParts && threadIdx.x < Shape::BM; ++part)
      out[(part * Shape::BM + row()) * Shape::kSumPitch] = part == 0 ? static_cast<float>(total) : 0.0f;
  }
};

// As TensorCoreProduct; Format is F32, n and WZ are 1.
template <class Format, class Shape, bool TRANS_A, bool TRANS_B, int WA, int WB, int WZ>
struct RegisterColumnProduct
    : PanelProduct<RegisterColumnSums<Shape, TRANS_A, TRANS_B>, Format, Shape, TRANS_A, TRANS_B, WA, WB, WZ> {
};

}  // namespace aicf::gemm
