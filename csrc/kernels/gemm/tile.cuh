// Pieces that the tiled gemm kernels share: where operands lie in shared memory, how tiles get there, and
// the way out.
//
// An operand tile keeps the order it has in memory: rows that are contiguous along k ("k-major", pitch of k
// plus padding) or along m or n. So a load is a plain copy of a window, whatever is transposed, and
// cp.async can do it.
#pragma once
#include "kernels/common/launch.cuh"
#include "kernels/gemm/epilogue.cuh"

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

// All threads of the block start copying the tiles of a at `row` and of b at `column` from step `k` on; b's
// follows a's in `stage`. W as in Window::load.
template <class TileA, class TileB, bool TRANS_A, bool TRANS_B, int THREADS, int W, class T>
__device__ __forceinline__ void load_stage(const GemmProblem& p, T* stage, const T* a, const T* b,
                                           int64_t row, int64_t column, int64_t k) {
  if constexpr (TRANS_A)
    TileA::template load<THREADS, W>(stage, a, k, row, p.k, p.m, p.a.leading);
  else
    TileA::template load<THREADS, W>(stage, a, row, k, p.m, p.k, p.a.leading);
  if (p.n == 0) return;  // only bias_grad is asked for: b holds nothing
  stage += TileA::kElements;
  if constexpr (TRANS_B)
    TileB::template load<THREADS, W>(stage, b, column, k, p.n, p.k, p.b.leading);
  else
    TileB::template load<THREADS, W>(stage, b, k, column, p.k, p.n, p.b.leading);
}

// Finishes a BM x BN tile whose sums lie in shared memory as PARTS partial tiles, added in order. W as in
// finish().
template <class T, int BM, int BN, int PARTS, int THREADS, int W>
__device__ __forceinline__ void finish_tile(const GemmProblem& p, const Compute<T>* sums, int pitch,
                                            const Product& product, int64_t row, int64_t column) {
  constexpr int kAcross = BN / W;
  const int part = BM * pitch;
#pragma unroll 1  // the activations are long; one copy of them is enough
  for (int i = threadIdx.x; i < BM * kAcross; i += THREADS) {
    const int r = i / kAcross, c = i % kAcross * W;
    if (row + r >= p.m || column + c >= p.n) continue;
    Compute<T> z[W];
#pragma unroll
    for (int w = 0; w < W; ++w) {
      z[w] = sums[r * pitch + c + w];
#pragma unroll
      for (int g = 1; g < PARTS; ++g) z[w] += sums[g * part + r * pitch + c + w];
    }
    finish<T, W>(p, product, z, row + r, column + c);
  }
}

// The sum over k of a's rows, for bias_grad: each thread sums a part of one row of every tile, then the
// parts are added in order. Zeros beyond the edges add nothing.
template <class T, int BM, int BK, int THREADS>
struct RowSums {
  static constexpr int kParts = THREADS / BM;
  static constexpr int kLength = BK / kParts;
  static_assert(kParts >= 1 && THREADS % BM == 0 && BK % kParts == 0,
                "every thread sums the same share of a row");

  float sum = 0;

  // `tile` holds rows along k (K_MAJOR, pitch between rows of a) or columns (pitch between steps of k).
  template <bool K_MAJOR>
  __device__ __forceinline__ void add(const T* tile, int pitch) {
    const int r = threadIdx.x % BM, first = threadIdx.x / BM * kLength;
#pragma unroll
    for (int l = 0; l < kLength; ++l)
      sum += widen(K_MAJOR ? tile[r * pitch + first + l] : tile[(first + l) * pitch + r]);
  }

  // `scratch`: THREADS floats of shared memory that no thread uses any more.
  __device__ __forceinline__ void store(const GemmProblem& p, float* scratch, int64_t row) const {
    scratch[threadIdx.x] = sum;
    __syncthreads();
    const int r = threadIdx.x;
    if (r < BM && row + r < p.m) {
      float total = scratch[r];
#pragma unroll
      for (int part = 1; part < kParts; ++part) total += scratch[part * BM + r];
      static_cast<T*>(p.bias_grad)[row + r] = narrow<T>(total);
    }
  }
};

// Whether every row of every operand starts at a multiple of 16 bytes, and the results' rows end at one, so
// that all accesses can be that wide. An operand that is not there has no rows.
template <class T>
bool rows_are_aligned(const GemmProblem& p) {
  const auto aligned = [](const auto& matrices) {
    return reinterpret_cast<uintptr_t>(matrices.data) % 16 == 0 && matrices.leading % kWidest<T> == 0 &&
           matrices.outer % kWidest<T> == 0 && matrices.inner % kWidest<T> == 0;
  };
  return p.n % kWidest<T> == 0 && aligned(p.a) && aligned(p.b) && aligned(p.saved) && aligned(p.out) &&
         aligned(p.pre) && reinterpret_cast<uintptr_t>(p.bias) % 16 == 0;
}

// One block per tile, tiles of a row of tiles next to each other so that they share a's rows in the L2
// cache. At least one tile a row even without columns: its block also writes bias_grad.
inline dim3 tile_grid(const GemmProblem& p, int bm, int bn) {
  const int64_t across = ceil_div<int64_t>(p.n, bn);
  const int64_t tiles = ceil_div<int64_t>(p.m, bm) * (across > 0 ? across : 1);
  return dim3(static_cast<unsigned>(tiles), 1, static_cast<unsigned>(p.batch < 65535 ? p.batch : 65535));
}

}  // namespace aicf::cuda
