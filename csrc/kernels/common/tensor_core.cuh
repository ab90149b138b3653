// The matrix instruction of tensor cores, 16 x 8 x 16 in f16 or bf16 with sums in f32, and what brings its
// operands. Lane l of a warp has rows l / 4 and l / 4 + 8 of a and of the sums, and columns 2 (l % 4) and the
// next; of b it has column l / 4, and rows 2 (l % 4) and the next. a has the columns from 8 on in at[2] and
// at[3], b the rows from 8 on in at[1].
#pragma once
#include "kernels/common/numeric.cuh"

namespace aicf::cuda {

// Two neighbours in one register, the first in its low half.
__device__ __forceinline__ unsigned pair_of(const __half* neighbours) {
  return *reinterpret_cast<const unsigned*>(neighbours);
}
__device__ __forceinline__ unsigned pair_of(const __nv_bfloat16* neighbours) {
  return *reinterpret_cast<const unsigned*>(neighbours);
}

// x and y, each rounded to T.
template <class T>
__device__ __forceinline__ unsigned pack(float x, float y) {
  const Vec<T, 2> both{narrow<T>(x), narrow<T>(y)};
  return pair_of(both.at);
}

// sums += a b.
template <class T>
__device__ __forceinline__ void multiply_add(float (&sums)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1) {
  static_assert(sizeof(T) == 2, "f16 or bf16");
  if constexpr (std::is_same_v<T, __half>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices from shared memory, each transposed: lanes 8 m to 8 m + 7 give the addresses of the
// rows of matrix m, multiples of 16 bytes, and lane l gets of each the elements of column l / 4 in rows 2 (l
// % 4) and the next: as multiply_add takes b.
template <class T>
__device__ __forceinline__ void load_transposed(unsigned (&matrices)[4], const T* row) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(address)
               : "memory");
}

}  // namespace aicf::cuda
