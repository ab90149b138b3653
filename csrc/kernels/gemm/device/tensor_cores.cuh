// The product in f16, bf16 and TF32 on tensor cores, sums in f32.
//
// All shapes give the same bits: each sum runs over k in steps of Format::kStep from its start to its end.
#pragma once
#include "kernels/gemm/device/tiles.cuh"

namespace aicf::gemm {

constexpr int kBlock = 16;  // of m and n: what is read at once

// 16 x Format::kStep elements of op(a) at `block`, in the order of Format::multiply.
template <class Tile, bool ALONG_K>
__device__ __forceinline__ void read_a(unsigned (&to)[4], const unsigned short* block) {
  const int lane = threadIdx.x % 32;
  const int m = ALONG_K ? lane % 16 : lane / 8 % 2 * 8;
  const int k = ALONG_K ? lane / 16 * 8 : lane / 16 * 8 + lane % 8;
  read_matrices<!ALONG_K>(to, block + m * Tile::kAlongExtent + k * Tile::kAlongK);
}

template <class Tile, bool ALONG_K>
__device__ __forceinline__ void read_a(unsigned (&to)[4], const float* block) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int quarter = 0; quarter < 4; ++quarter) {
    const int m = lane / 4 + quarter % 2 * 8, k = lane % 4 + quarter / 2 * 4;
    to[quarter] = TF32::read(block + m * Tile::kAlongExtent + k * Tile::kAlongK);
  }
}

// Format::kStep x 16 elements of op(b): two blocks of eight columns, in the order of Format::multiply.
template <class Tile, bool ALONG_K>
__device__ __forceinline__ void read_b(unsigned (&to)[2][2], const unsigned short* block) {
  const int lane = threadIdx.x % 32;
  const int n = ALONG_K ? lane / 16 * 8 + lane % 8 : lane / 16 * 8;
  const int k = ALONG_K ? lane / 8 % 2 * 8 : lane % 16;
  unsigned four[4];
  read_matrices<!ALONG_K>(four, block + n * Tile::kAlongExtent + k * Tile::kAlongK);
  to[0][0] = four[0], to[0][1] = four[1], to[1][0] = four[2], to[1][1] = four[3];
}

template <class Tile, bool ALONG_K>
__device__ __forceinline__ void read_b(unsigned (&to)[2][2], const float* block) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    const int n = lane / 4 + part / 2 * 8, k = lane % 4 + part % 2 * 4;
    to[part / 2][part % 2] = TF32::read(block + n * Tile::kAlongExtent + k * Tile::kAlongK);
  }
}

// The sums of a warp, WM x WN.
template <class Format, class Shape, bool TRANS_A, bool TRANS_B>
struct WarpSums {
  using T = typename Format::Element;
  using Shared = SharedMemory<Shape, TRANS_A, TRANS_B>;
  static constexpr int kDown = Shape::WM / kBlock, kAcross = Shape::WN / kBlock;
  float sums[kDown][kAcross][2][4] = {};

  __device__ __forceinline__ static int first_row() {
    return threadIdx.x / 32 / (Shape::BN / Shape::WN) * Shape::WM;
  }
  __device__ __forceinline__ static int first_column() {
    return threadIdx.x / 32 % (Shape::BN / Shape::WN) * Shape::WN;
  }

  // Adds the products of a stage.
  __device__ __forceinline__ void add(const T* stage) {
    using A = typename Shared::A;
    using B = typename Shared::B;
    const T* a = stage + first_row() * A::kAlongExtent;
    const T* b = stage + A::kElements + first_column() * B::kAlongExtent;
#pragma unroll
    for (int k = 0; k < Shape::BK; k += Format::kStep) {
      unsigned x[kDown][4], y[kAcross][2][2];
#pragma unroll
      for (int i = 0; i < kDown; ++i)
        read_a<A, !TRANS_A>(x[i], a + i * kBlock * A::kAlongExtent + k * A::kAlongK);
#pragma unroll
      for (int j = 0; j < kAcross; ++j)
        read_b<B, TRANS_B>(y[j], b + j * kBlock * B::kAlongExtent + k * B::kAlongK);
#pragma unroll
      for (int i = 0; i < kDown; ++i)
#pragma unroll
        for (int j = 0; j < kAcross; ++j)
#pragma unroll
          for (int half = 0; half < 2; ++half) Format::multiply(sums[i][j][half], x[i], y[j][half]);
    }
  }

  // Writes them to the tile in shared memory.
  __device__ __forceinline__ void write(float* tile) const {
    const int lane = threadIdx.x % 32;
    float* first = tile + (first_row() + lane / 4) * Shape::kSumPitch + first_column() + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kDown; ++i)
#pragma unroll
      for (int j = 0; j < kAcross; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float (&four)[4] = sums[i][j][half];
          float* at = first + i * kBlock * Shape::kSumPitch + j * kBlock + half * 8;
          *reinterpret_cast<float2*>(at) = make_float2(four[0], four[1]);
          *reinterpret_cast<float2*>(at + 8 * Shape::kSumPitch) = make_float2(four[2], four[3]);
        }
  }
};

// `run` computes z, see problem.cuh, by blocks of Shape::kThreads with SharedMemory::kBytes at `shared`, any
// number of blocks. The matrices of a and b lie in memory as they are (m x k, k x n) or, TRANS, the other way
// around. They are read WA and WB elements at a time, a power of two up to 16 bytes, which divides their
// address, leading dimension and batch strides; the epilogue gets WZ, up to 8, which divides n.
template <class Format, class Shape, bool TRANS_A, bool TRANS_B, int WA, int WB, int WZ>
struct TensorCoreProduct {
  template <class Epilogue, class Totals>
  static __device__ __forceinline__ void run(const Problem& p, const void* a, const void* b,
                                             const Epilogue& epilogue, const Totals& totals,
                                             unsigned char* shared) {
    using T = typename Format::Element;
    constexpr int kStage = SharedMemory<Shape, TRANS_A, TRANS_B>::kStage;
    T* stages = reinterpret_cast<T*>(shared);
    float* out = reinterpret_cast<float*>(shared);
    const long long steps = (p.k + Shape::BK - 1) / Shape::BK;
    const Tiles<Shape::BM, Shape::BN> tiles(p);

    for (long long index = blockIdx.x; index < tiles.count; index += gridDim.x) {
      const auto place = tiles.place(p, index);
      const T* matrix_a = static_cast<const T*>(a) + p.a.start(place.member);
      const T* matrix_b = static_cast<const T*>(b) + p.b.start(place.member);
      const bool adds_rows = totals.wanted() && place.column == 0;
      auto fetch = [&](long long step) {
        if (step < steps)
          copy_stage<Shape, TRANS_A, TRANS_B, WA, WB>(p, stages + step % Shape::STAGES * kStage, matrix_a,
                                                      matrix_b, place.row, place.column, step * Shape::BK);
        commit_copies();  // an empty group too: wait_copies counts groups
      };

      WarpSums<Format, Shape, TRANS_A, TRANS_B> sums;
      RowTotals<Format, Shape, TRANS_A> rows;
#pragma unroll
      for (int s = 0; s < Shape::STAGES - 1; ++s) fetch(s);
      for (long long step = 0; step < steps; ++step) {
        wait_copies<Shape::STAGES - 2>();
        __syncthreads();  // this step's tiles are there for all, and the last step's are done with
        fetch(step + Shape::STAGES - 1);  // into the place of the last step's
        const T* stage = stages + step % Shape::STAGES * kStage;
        if (adds_rows) rows.add(stage);
        sums.add(stage);
      }

      wait_copies<0>();
      __syncthreads();  // the stages become the sums
      sums.write(out);
      __syncthreads();
      finish_tile<Shape, WZ>(p, out, place, epilogue);
      if (adds_rows) rows.finish(p, out + Shape::BM * Shape::kSumPitch, place, totals);
      __syncthreads();  // before the next tile overwrites the sums
    }
  }
};

}  // namespace aicf::gemm
