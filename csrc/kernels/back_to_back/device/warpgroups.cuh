// Products of a warpgroup, four warps with 64 rows: the left matrix is in registers, the right one in shared
// memory, the sums are in registers. From sm_90a on.
//
// A warp has 16 rows. Of a matrix of N columns of 16 bits lane l holds pairs of neighbours: pair 2 j + h is
// row l / 4 + 8 h, columns 8 j + l % 4 * 2 and the next. The sums lie alike, each a float: what is rounded to
// pairs is the left matrix of the next product.
#pragma once
#include "kernels/gemm/device/instructions.cuh"

namespace aicf::chain {

using aicf::gemm::copy_async;
using aicf::gemm::read_matrices;
using aicf::gemm::shared_address;

// A matrix [R, C] of 16 bits without gaps, as the tensor cores read it: panels of 64 columns, 128 bytes a
// row, whose chunks of 16 bytes lie in an order that differs from row to row. It begins at a multiple of 1024
// bytes.
template <int R, int C>
struct Panels {
  static constexpr int kChunks = C / 8, kPanel = R * 128, kBytes = (C + 63) / 64 * kPanel;
  static_assert(R % 16 == 0 && C % 16 == 0, "whole steps of 16");

  // All `threads` start copying the matrix.
  static __device__ __forceinline__ void fetch(unsigned char* shared, const void* global, int threads) {
    for (int i = threadIdx.x; i < R * kChunks; i += threads) {
      const int row = i / kChunks, chunk = i % kChunks;
      copy_async<16>(shared + chunk / 8 * kPanel + row * 128 + (chunk % 8 ^ row % 8) * 16,
                     static_cast<const unsigned char*>(global) + i * 16, 16);
    }
  }

  // How the tensor cores find 16 steps of the sum from step k on. BY_ROW: rows are columns of the product and
  // columns its steps; else columns are columns and rows its steps.
  template <bool BY_ROW>
  static __device__ __forceinline__ unsigned long long describe(unsigned shared, int k) {
    const unsigned start = BY_ROW ? shared + k / 64 * kPanel + k % 64 * 2 : shared + k * 128;
    // In units of 16 bytes: from panel to panel, from eight rows to the next eight; then the order of chunks.
    constexpr unsigned long long kLayout =
        static_cast<unsigned long long>(BY_ROW ? 1 : kPanel / 16) << 16 | 1024ull / 16 << 32 | 1ull << 62;
    return kLayout | (start & 0x3ffffu) >> 4;
  }
};

// As Panels::describe says it, of 16 rows in a warp's Strip: rows are the steps of the sum. PANEL: bytes from
// panel to panel.
template <int PANEL>
__device__ __forceinline__ unsigned long long describe_strip(unsigned strip) {
  return static_cast<unsigned long long>(PANEL / 16) << 16 | 1024ull / 16 << 32 | 1ull << 62 |
         (strip & 0x3ffffu) >> 4;
}
// Of 16 steps and 8 columns that are all the same, 256 bytes.
__device__ __forceinline__ unsigned long long describe_constant(unsigned shared) {
  return 128ull / 16 << 16 | 128ull / 16 << 32 | (shared & 0x3ffffu) >> 4;
}

// What this thread has written to shared memory the tensor cores read, behind the next barrier.
__device__ __forceinline__ void show_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Of the four warps of a warpgroup.
__device__ __forceinline__ void meet(int warpgroup) {
  asm volatile("bar.sync %0, 128;" ::"r"(1 + warpgroup) : "memory");
}

// Before a product, when all its registers are written; behind its instructions; and when it is needed.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int UNDER_WAY = 0, int COUNT>
__device__ __forceinline__ void wait_products(float (&sums)[COUNT]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(UNDER_WAY) : "memory");
#pragma unroll
  for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

}  // namespace aicf::chain
