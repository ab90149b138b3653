// The two products of attention as a warp computes them, with the same lanes for every element type: lane l
// has rows l / 4 and l / 4 + 8 of 16, and of each 8 columns the two from 2 (l % 4) on:
//   at[tile][0], at[tile][1]: row l / 4;  at[tile][2], at[tile][3]: row l / 4 + 8
// f16 and bf16 on tensor cores, f32 and f64 without.
#pragma once
#include <type_traits>

#include "kernels/common/launch.cuh"
#include "kernels/common/numeric.cuh"
#include "kernels/gemm/device/instructions.cuh"

namespace aicf::cuda {

__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
// The row of element `e` of a tile, 0 to 15, and its column, 0 to 7.
__device__ __forceinline__ int row_of(int e) { return lane() / 4 + e / 2 * 8; }
__device__ __forceinline__ int column_of(int e) { return lane() % 4 * 2 + e % 2; }

__device__ __forceinline__ float fused(float x, float y, float z) { return fmaf(x, y, z); }
__device__ __forceinline__ double fused(double x, double y, double z) { return fma(x, y, z); }

// Of f16 and bf16, the matrix instruction. What is in no matrix of shared memory comes to it as two
// neighbours in one register, the first in its low half.
template <class T>
using Format = std::conditional_t<std::is_same_v<T, __half>, gemm::F16, gemm::BF16>;
template <class T>
__device__ __forceinline__ unsigned pair_of(const T* neighbours) {
  static_assert(sizeof(T) == 2, "f16 or bf16");
  return *reinterpret_cast<const unsigned*>(neighbours);
}
// x and y, each rounded to T.
template <class T>
__device__ __forceinline__ unsigned pack(float x, float y) {
  const Vec<T, 2> both{narrow<T>(x), narrow<T>(y)};
  return pair_of(both.at);
}

// sums[tile] = a bT: 16 rows of a with 8 TILES rows of b, PADDED elements each, PITCH apart in shared memory.
template <int PADDED, int PITCH, int TILES, class T>
__device__ __forceinline__ void multiply_rows(Compute<T> (&sums)[TILES][4], const T* a, const T* b) {
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[tile][e] = 0;
  if constexpr (sizeof(T) == 2) {
    a += row_of(0) * PITCH + column_of(0);
    b += lane() / 4 * PITCH + column_of(0);
#pragma unroll
    for (int k = 0; k < PADDED; k += 16) {
      const unsigned x[4] = {pair_of(a + k), pair_of(a + 8 * PITCH + k), pair_of(a + k + 8),
                             pair_of(a + 8 * PITCH + k + 8)};
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) {
        const T* row = b + tile * 8 * PITCH + k;
        const unsigned y[2] = {pair_of(row), pair_of(row + 8)};
        Format<T>::multiply(sums[tile], x, y);
      }
    }
  } else {
    constexpr int W = kWidest<T>;
    using Vector = Vec<T, W>;
    a += row_of(0) * PITCH;
    b += column_of(0) * PITCH;
#pragma unroll 2
    for (int k = 0; k < PADDED; k += W) {
      const Vector low = *reinterpret_cast<const Vector*>(a + k);
      const Vector high = *reinterpret_cast<const Vector*>(a + 8 * PITCH + k);
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const Vector y = *reinterpret_cast<const Vector*>(b + (tile * 8 + c) * PITCH + k);
#pragma unroll
          for (int w = 0; w < W; ++w) {
            sums[tile][c] = fused(low.at[w], y.at[w], sums[tile][c]);
            sums[tile][2 + c] = fused(high.at[w], y.at[w], sums[tile][2 + c]);
          }
        }
      }
    }
  }
}

// sums += x b: 16 rows of x, 8 INNER elements each, with as many rows of b, of which 8 TILES elements count.
template <int PITCH, int INNER, int TILES, class T>
__device__ __forceinline__ void add_product(Compute<T> (&sums)[TILES][4], const Compute<T> (&x)[INNER][4],
                                            const T* b) {
  if constexpr (sizeof(T) == 2) {
    static_assert(INNER % 2 == 0 && TILES % 2 == 0,
                  "a matrix instruction takes 16 rows of b, a load 16 columns");
    b += lane() % 16 * PITCH + lane() / 16 * 8;
#pragma unroll
    for (int k = 0; k < INNER; k += 2) {
      const unsigned a[4] = {pack<T>(x[k][0], x[k][1]), pack<T>(x[k][2], x[k][3]),
                             pack<T>(x[k + 1][0], x[k + 1][1]), pack<T>(x[k + 1][2], x[k + 1][3])};
#pragma unroll
      for (int tile = 0; tile < TILES; tile += 2) {
        unsigned y[4];
        gemm::read_matrices<true>(y, b + k * 8 * PITCH + tile * 8);
        Format<T>::multiply(sums[tile], a, {y[0], y[1]});
        Format<T>::multiply(sums[tile + 1], a, {y[2], y[3]});
      }
    }
  } else {
    using Pair = Vec<T, 2>;
    b += column_of(0);
#pragma unroll
    for (int k = 0; k < INNER; ++k) {
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const int owner = lane() / 4 * 4 + c / 2;  // of column c of both rows
        const T low = __shfl_sync(0xffffffffu, x[k][c % 2], owner);
        const T high = __shfl_sync(0xffffffffu, x[k][2 + c % 2], owner);
        const T* row = b + (k * 8 + c) * PITCH;
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
          const Pair y = *reinterpret_cast<const Pair*>(row + tile * 8);
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            sums[tile][e] = fused(low, y.at[e], sums[tile][e]);
            sums[tile][2 + e] = fused(high, y.at[e], sums[tile][2 + e]);
          }
        }
      }
    }
  }
}

// exp(x) by one instruction, 2 units in the last place off, and the rounding of its operand.
__device__ __forceinline__ float exp_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
  return y;
}

// Of a weight that is rounded to T before it is multiplied.
template <class T>
__device__ __forceinline__ Compute<T> exp_for(Compute<T> x) {
  if constexpr (sizeof(T) == 2)
    return exp_fast(x);
  else
    return scalar::exp(x);
}

// Of both rows of a lane, over the four lanes that share them; each gets the results.
template <class Op, class C>
__device__ __forceinline__ C reduce_row(C value) {
  value = Op{}(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return Op{}(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

}  // namespace aicf::cuda
