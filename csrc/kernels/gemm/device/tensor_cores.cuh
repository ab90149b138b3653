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

  // What its products of Format::kStep steps of k need of both operands.
  struct Operands {
    unsigned x[kDown][4], y[kAcross][2][2];

    // From step `k` of a stage on.
    __device__ __forceinline__ void read(const T* stage, int k) {
      using A = typename Shared::A;
      using B = typename Shared::B;
      const T* a = stage + first_row() * A::kAlongExtent + k * A::kAlongK;
      const T* b = stage + A::kElements + first_column() * B::kAlongExtent + k * B::kAlongK;
#pragma unroll
      for (int i = 0; i < kDown; ++i) read_a<A, !TRANS_A>(x[i], a + i * kBlock * A::kAlongExtent);
#pragma unroll
      for (int j = 0; j < kAcross; ++j) read_b<B, TRANS_B>(y[j], b + j * kBlock * B::kAlongExtent);
    }
  };

  __device__ __forceinline__ void add(const Operands& operands) {
#pragma unroll
    for (int i = 0; i < kDown; ++i)
#pragma unroll
      for (int j = 0; j < kAcross; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          Format::multiply(sums[i][j][half], operands.x[i], operands.y[j][half]);
  }

  // Writes those of a slice to the tile in shared memory.
  __device__ __forceinline__ void write(float* tile, int slice) const {
    constexpr int kOfSlice = kDown / Shape::kSlices;
    static_assert(kDown % Shape::kSlices == 0, "a slice has whole blocks of a warp");
    const int lane = threadIdx.x % 32;
    float* first =
        tile + (first_row() / Shape::kSlices + lane / 4) * Shape::kSumPitch + first_column() + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
      if (i / kOfSlice != slice) continue;
#pragma unroll
      for (int j = 0; j < kAcross; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float (&four)[4] = sums[i][j][half];
          float* at = first + i % kOfSlice * kBlock * Shape::kSumPitch + j * kBlock + half * 8;
          *reinterpret_cast<float2*>(at) = make_float2(four[0], four[1]);
          *reinterpret_cast<float2*>(at + 8 * Shape::kSumPitch) = make_float2(four[2], four[3]);
        }
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
    float* out = reinterpret_cast<float*>(shared);
    const Tiles<Shape::BM, Shape::BN> tiles(p);

    for (long long index = blockIdx.x; index < tiles.count; index += gridDim.x) {
      const auto place = tiles.place(p, index);
      const long long k = p.depth(place.member);
      const bool adds_rows = totals.wanted() && place.column == 0;
      Stages<Shape, TRANS_A, TRANS_B, WA, WB, T> stages(p, place, k, a, b, reinterpret_cast<T*>(shared));
      Sums sums;
      RowTotals<Format, Shape, TRANS_A> rows;
      if (adds_rows)
        multiply(k, stages, sums, [&](const T* stage) { rows.add(stage); });
      else
        multiply(k, stages, sums, [](const T*) {});

      wait_copies<0>();
#pragma unroll 1
      for (int slice = 0; slice < Shape::kSlices; ++slice) {
        __syncthreads();  // the stages, or the last slice, become the sums
        sums.write(out, slice);
        __syncthreads();
        finish_tile<Shape, WZ>(p, out, place, slice, epilogue);
      }
      if (adds_rows) rows.finish(p, out, place, totals);
      __syncthreads();  // before the next tile overwrites the sums
    }
  }

 private:
  using Sums = WarpSums<Format, Shape, TRANS_A, TRANS_B>;

  // Adds the products of all steps of k to the sums of a warp, and hands each stage to `also`.
  template <class Copies, class Also>
  static __device__ __forceinline__ void multiply(long long k, Copies& stages, Sums& sums, const Also& also) {
    constexpr int kSteps = Shape::BK / Format::kStep;
    typename Sums::Operands operands[2];
    if constexpr (Shape::kAhead) {
      static_assert(kSteps % 2 == 0, "the operands of a stage begin in the first of two places");
      stages.wait();
      operands[0].read(stages.current(), 0);
#pragma unroll 1
      for (long long left = k; left > 0; left -= Shape::BK) {
        stages.fetch_ahead(left);
        also(stages.current());
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
          if (s == kSteps - 1) {  // what a last stage is followed by is read, and not used
            stages.advance();
            stages.wait();
          }
          operands[(s + 1) % 2].read(stages.current(), (s + 1) % kSteps * Format::kStep);
          sums.add(operands[s % 2]);
        }
      }
    } else {
#pragma unroll 1
      for (long long left = k; left > 0; left -= Shape::BK) {
        stages.wait();
        also(stages.current());
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
          operands[0].read(stages.current(), s * Format::kStep);
          if (s == kSteps - 1) stages.fetch_ahead(left);  // later, with fewer operands to keep in registers
          sums.add(operands[0]);
        }
        stages.advance();
      }
    }
  }
};

}  // namespace aicf::gemm
