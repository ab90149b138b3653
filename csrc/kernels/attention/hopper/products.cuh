// Products of a warpgroup, 64 rows, by Hopper's tensor cores: sums[tile] of 8 columns each, laid out as in
// products.cuh. The right matrix lies in shared memory in panels (warpgroups.cuh), the left one in registers
// or in panels too.
#pragma once
#include "kernels/attention/products.cuh"
#include "kernels/back_to_back/device/warpgroups.cuh"

namespace aicf::cuda {

using chain::begin_products, chain::commit_products, chain::Panels, chain::show_products;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define AICF_HAS_WARPGROUPS 1
#else
#define AICF_HAS_WARPGROUPS 0  // the kernels are empty; no target of theirs runs this code
#endif

constexpr int kGroupRows = 64, kGroupThreads = 128;

// Four registers of the left matrix for 16 steps of the sum.
using Left = unsigned[4];

#if AICF_HAS_WARPGROUPS
#define AICF_SUMS_4(s, t) "+f"(s[t][0]), "+f"(s[t][1]), "+f"(s[t][2]), "+f"(s[t][3])
#define AICF_SUMS_32(s, t)                                                                \
  AICF_SUMS_4(s, t), AICF_SUMS_4(s, t + 1), AICF_SUMS_4(s, t + 2), AICF_SUMS_4(s, t + 3), \
      AICF_SUMS_4(s, t + 4), AICF_SUMS_4(s, t + 5), AICF_SUMS_4(s, t + 6), AICF_SUMS_4(s, t + 7)
#define AICF_NAMES_32                                                                          \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define AICF_NAMES_64                                                             \
  AICF_NAMES_32                                                                   \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
  "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// One instruction: 16 steps. ACROSS: rows of the right matrix are steps; else its columns are.
#define AICF_PRODUCT(N, TYPE, NAMES, SUMS, A0, A1, A2, A3, B, P, S0, S1)                                    \
  template <bool ACROSS>                                                                                    \
  __device__ __forceinline__ void add_step(TYPE, float (&s)[N / 8][4], const Left& a, unsigned long long b, \
                                           bool add) {                                                      \
    asm volatile("{.reg .pred more; setp.ne.s32 more, " P ", 0; wgmma.mma_async.sync.aligned.m64n" #N       \
                 "k16.f32." S0 "." S0 " {" NAMES "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " B                  \
                 ", more, 1, 1, " S1 ";}"                                                                   \
                 : SUMS                                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)),          \
                   "n"(ACROSS ? 1 : 0));                                                                    \
  }
#define AICF_SHARED_PRODUCT(N, TYPE, NAMES, SUMS, A, B, P, S0, S1)                                    \
  template <bool ACROSS>                                                                              \
  __device__ __forceinline__ void add_step(TYPE, float (&s)[N / 8][4], unsigned long long a,          \
                                           unsigned long long b, bool add) {                          \
    asm volatile("{.reg .pred more; setp.ne.s32 more, " P ", 0; wgmma.mma_async.sync.aligned.m64n" #N \
                 "k16.f32." S0 "." S0 " {" NAMES "}, " A ", " B ", more, 1, 1, 0, " S1 ";}"           \
                 : SUMS                                                                               \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(ACROSS ? 1 : 0));                  \
  }
#define AICF_SUMS_64 AICF_SUMS_32(s, 0), AICF_SUMS_32(s, 8)
#define AICF_PRODUCTS_OF(TYPE, NAME)                                                                        \
  AICF_PRODUCT(64, TYPE, AICF_NAMES_32, AICF_SUMS_32(s, 0), "%32", "%33", "%34", "%35", "%36", "%37", NAME, \
               "%38")                                                                                       \
  AICF_PRODUCT(128, TYPE, AICF_NAMES_64, AICF_SUMS_64, "%64", "%65", "%66", "%67", "%68", "%69", NAME,      \
               "%70")                                                                                       \
  AICF_SHARED_PRODUCT(64, TYPE, AICF_NAMES_32, AICF_SUMS_32(s, 0), "%32", "%33", "%34", NAME, "%35")
AICF_PRODUCTS_OF(gemm::F16, "f16")
AICF_PRODUCTS_OF(gemm::BF16, "bf16")
#undef AICF_PRODUCTS_OF
#undef AICF_SHARED_PRODUCT
#undef AICF_PRODUCT
#undef AICF_SUMS_64
#undef AICF_NAMES_64
#undef AICF_NAMES_32
#undef AICF_SUMS_32
#undef AICF_SUMS_4
#endif

// Waits for all products but the latest UNDER_WAY; `sums` are there then.
template <int UNDER_WAY, int TILES>
__device__ __forceinline__ void wait_sums(float (&sums)[TILES][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(UNDER_WAY) : "memory");
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(sums[tile][e])::"memory");
}

// D elements of each row of ROWS, in panels.
template <int ROWS, int D>
struct Tile : Panels<ROWS, D> {
  using Panels<ROWS, D>::kPanel, Panels<ROWS, D>::kBytes, Panels<ROWS, D>::kChunks;

  // Where a chunk of 8 elements lies.
  static __device__ __forceinline__ int place(int row, int chunk) {
    return chunk / 8 * kPanel + row * 128 + (chunk % 8 ^ row % 8) * 16;
  }

  // All THREADS start copying the rows from `row` on of a matrix of rows x columns; the rest becomes zero.
  // `wide`: rows begin at multiples of 16 bytes. A thread copies the same chunk of every row that it copies.
  template <int THREADS, class T>
  static __device__ __forceinline__ void load(unsigned char* shared, const T* matrix, int64_t pitch, int row,
                                              int rows, int columns, bool wide) {
    constexpr int kStride = THREADS / kChunks, kCount = (ROWS + kStride - 1) / kStride;
    static_assert(THREADS % kChunks == 0 && kStride % 8 == 0, "the order of chunks is that of every row");
    const int first = static_cast<int>(threadIdx.x) / kChunks,
              chunk = static_cast<int>(threadIdx.x) % kChunks;
    unsigned char* target = shared + place(first, chunk);
    const int left = columns - chunk * 8, valid = left < 0 ? 0 : left < 8 ? left : 8;
    const T* source = matrix + (valid ? (row + first) * pitch + chunk * 8 : 0);
    if (wide && row + ROWS <= rows) {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (ROWS % kStride == 0 || first + i * kStride < ROWS)
          gemm::copy_async<16>(target + i * kStride * 128, source + i * kStride * pitch, valid * 2);
    } else {
#pragma unroll 1
      for (int i = 0; i < kCount; ++i) {
        const int r = first + i * kStride, there = row + r < rows ? valid : 0;
        if (r >= ROWS) continue;
        const T* own = there ? source + i * kStride * pitch : matrix;
        if (wide) {
          gemm::copy_async<16>(target + i * kStride * 128, own, there * 2);
        } else {
          Vec<T, 8> values;
#pragma unroll
          for (int c = 0; c < 8; ++c) values.at[c] = c < there ? own[c] : T{};
          *reinterpret_cast<Vec<T, 8>*>(target + i * kStride * 128) = values;
        }
      }
    }
    __syncwarp();  // the instructions behind are for whole warps
  }
};

// sums = left rightT, of the 64 rows of this warpgroup from `row` on in a Tile<ROWS, D> and all of a
// Tile<RIGHT, D>. Under way when it returns. Rows that a loop keeps in registers instead were seen to be
// overwritten by the compiler (nvcc 13.0, heads of 64).
template <class T, int ROWS, int RIGHT, int D>
__device__ __forceinline__ void start_scores(float (&sums)[RIGHT / 8][4], const unsigned char* left, int row,
                                             const unsigned char* right) {
#if AICF_HAS_WARPGROUPS
  const unsigned own = gemm::shared_address(left) + row * 128, begin = gemm::shared_address(right);
  begin_products();
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
    add_step<false>(Format<T>{}, sums, Tile<ROWS, D>::template describe<true>(own, k * 16),
                    Tile<RIGHT, D>::template describe<true>(begin, k * 16), k > 0);
  commit_products();
#endif
}

// Scores as the left matrix of the next product, rounded to T.
template <class T, int TILES>
__device__ __forceinline__ void pack_rows(Left (&to)[TILES / 2], const float (&x)[TILES][4]) {
#pragma unroll
  for (int k = 0; k < TILES / 2; ++k)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      to[k][e] = pack<T>(x[2 * k + e / 2][e % 2 * 2], x[2 * k + e / 2][e % 2 * 2 + 1]);
}

// sums += left right: right is a Tile<STEPS, D> whose rows are the steps. Under way when it returns.
template <class T, int STEPS, int D>
__device__ __forceinline__ void start_adding(float (&sums)[D / 8][4], const Left (&left)[STEPS / 16],
                                             const unsigned char* right) {
#if AICF_HAS_WARPGROUPS
  const unsigned begin = gemm::shared_address(right);
  begin_products();
#pragma unroll
  for (int k = 0; k < STEPS / 16; ++k)
    add_step<true>(Format<T>{}, sums, left[k], Tile<STEPS, D>::template describe<false>(begin, k * 16), true);
  commit_products();
#endif
}

// Two neighbours of a row of a result, which may begin at any element.
template <class T>
__device__ __forceinline__ void store_pair(T* to, int column, int columns, float x, float y) {
  if (column + 1 < columns && reinterpret_cast<uintptr_t>(to + column) % 4 == 0) {
    *reinterpret_cast<unsigned*>(to + column) = pack<T>(x, y);
    return;
  }
  if (column < columns) to[column] = narrow<T>(x);
  if (column + 1 < columns) to[column + 1] = narrow<T>(y);
}

}  // namespace aicf::cuda
