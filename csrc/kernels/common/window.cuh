// Windows of matrices in shared memory, copied there in the background (cp.async, from sm_80 on).
#pragma once
#include "kernels/common/numeric.cuh"

namespace aicf::cuda {

// Copies BYTES (4, 8 or 16) to shared memory in the background; bytes from `valid` on are written as zeros.
template <int BYTES>
__device__ __forceinline__ void copy_async(void* shared, const void* global, int valid) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(valid)
                 : "memory");
  } else {
    static_assert(BYTES == 4 || BYTES == 8, "cp.async moves 4, 8 or 16 bytes");
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(global), "n"(BYTES),
                 "r"(valid)
                 : "memory");
  }
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most PENDING of this thread's latest groups are under way.
template <int PENDING>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// A window of ROWS x COLUMNS elements of a row-major matrix in shared memory. The padding of 16 bytes a row
// keeps rows aligned and spreads them over the banks.
template <class T, int ROWS, int COLUMNS>
struct Window {
  static constexpr int kPitch = COLUMNS + kWidest<T>;
  static constexpr int kElements = ROWS * kPitch;

  // All THREADS of the block copy the window at (row, column) of the matrix `global` of rows x columns
  // elements, `pitch` of them from row to row, W at a time; what lies outside the matrix becomes zero. W > 1
  // needs the matrix and its rows aligned to W elements.
  template <int THREADS, int W>
  static __device__ __forceinline__ void load(T* shared, const T* global, int64_t row, int64_t column,
                                              int64_t rows, int64_t columns, int64_t pitch) {
    constexpr int kAcross = COLUMNS / W;
    for (int i = threadIdx.x; i < ROWS * kAcross; i += THREADS) {
      const int r = i / kAcross, c = i % kAcross * W;
      const int64_t left = row + r < rows ? columns - (column + c) : 0;
      const int valid = left <= 0 ? 0 : left < W ? static_cast<int>(left) : W;
      const T* source = valid > 0 ? global + (row + r) * pitch + column + c : global;
      T* destination = shared + r * kPitch + c;
      if constexpr (sizeof(T) * W >= 4) {
        copy_async<static_cast<int>(sizeof(T)) * W>(destination, source, valid * static_cast<int>(sizeof(T)));
      } else {
        *destination = valid > 0 ? *source : T(0.0f);
      }
    }
  }
};

}  // namespace aicf::cuda
