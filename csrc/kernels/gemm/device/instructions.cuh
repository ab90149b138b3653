// The instructions that C++ has no words for: copies in the background, tensor cores, 16-bit floats, TF32.
#pragma once

namespace aicf::gemm {

// In bytes. A pointer takes twice the registers, and instructions to add to.
using SharedAddress = unsigned;
__device__ __forceinline__ SharedAddress shared_address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

// Copies BYTES (4, 8 or 16) to shared memory in the background; bytes from `valid` on are written as zeros.
// The addresses are multiples of BYTES.
template <int BYTES>
__device__ __forceinline__ void copy_async(SharedAddress to, const void* global, int valid) {
  if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(valid)
                 : "memory");
  } else {
    static_assert(BYTES == 4 || BYTES == 8, "cp.async moves 4, 8 or 16 bytes");
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global), "n"(BYTES),
                 "r"(valid)
                 : "memory");
  }
}
template <int BYTES>
__device__ __forceinline__ void copy_async(void* shared, const void* global, int valid) {
  copy_async<BYTES>(shared_address(shared), global, valid);
}
// All of the BYTES, or zeros instead of them: then `global` is not read.
template <int BYTES>
__device__ __forceinline__ void copy_async_unless(bool zeros, void* shared, const void* global) {
  if constexpr (BYTES == 16) {
    asm volatile(
        "{.reg .pred zeros; setp.ne.s32 zeros, %2, 0; cp.async.cg.shared.global [%0], [%1], 16, zeros;}" ::
            "r"(shared_address(shared)),
        "l"(global), "r"(static_cast<int>(zeros))
        : "memory");
  } else {
    static_assert(BYTES == 4 || BYTES == 8, "cp.async moves 4, 8 or 16 bytes");
    asm volatile(
        "{.reg .pred zeros; setp.ne.s32 zeros, %2, 0; cp.async.ca.shared.global [%0], [%1], %3, zeros;}" ::
            "r"(shared_address(shared)),
        "l"(global), "r"(static_cast<int>(zeros)), "n"(BYTES)
        : "memory");
  }
}
// x, which the compiler holds in a register instead of computing it anew for each access.
__device__ __forceinline__ SharedAddress kept(SharedAddress x) {
  asm volatile("" : "+r"(x));
  return x;
}
// With the bits of `distance` turned over.
__device__ __forceinline__ SharedAddress exchanged(SharedAddress x, unsigned distance) {
  return x ^ distance;
}
__device__ __forceinline__ float4 read_four(SharedAddress from) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(from)
               : "memory");
  return v;
}
__device__ __forceinline__ void write_one(SharedAddress to, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
}
// A barrier of THREADS that follow each other, whole warps: the `group`-th of the block, one of 15 at most.
template <int THREADS>
__device__ __forceinline__ void sync_group(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(THREADS) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most PENDING of this thread's latest groups are under way.
template <int PENDING>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Four matrices of 8 x 8 elements of 16 bits, by a whole warp: lane 8 i + r hands over the address of row r
// of matrix i, a multiple of 16 bytes. Lane l gets of each matrix the elements (l / 4, l % 4 * 2) and the
// next one of the row; of its transpose where TRANSPOSED.
template <bool TRANSPOSED>
__device__ __forceinline__ void read_matrices(unsigned (&to)[4], const void* row) {
  if constexpr (TRANSPOSED) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
  }
}

// The element types: what is in memory, what sums are in. The 16-bit ones are bits here, whatever type the
// surroundings have for them. `multiply` adds the product of x [16, kStep] and y [kStep, 8] to the sums
// [16, 8], by a whole warp: lane l holds a part of each quarter of x (upper left, lower left, upper right,
// lower right) and of each half of y transposed, and the sums (l / 4, l % 4 * 2), its right neighbour, and
// both of these eight rows below. Of 16-bit elements the parts are what read_matrices gives, of TF32 what
// `TF32::read` gives of the element (l / 4, l % 4) of the quarter or half.
struct F16 {
  using Element = unsigned short;
  using Wide = float;
  static constexpr int kStep = 16;
  static __device__ __forceinline__ float wide(Element x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
  }
  static __device__ __forceinline__ void multiply(float (&sums)[4], const unsigned (&x)[4],
                                                  const unsigned (&y)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  }
};
struct BF16 {
  using Element = unsigned short;
  using Wide = float;
  static constexpr int kStep = 16;
  static __device__ __forceinline__ float wide(Element x) {
    return __uint_as_float(static_cast<unsigned>(x) << 16);
  }
  static __device__ __forceinline__ void multiply(float (&sums)[4], const unsigned (&x)[4],
                                                  const unsigned (&y)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  }
};
// f32 in memory. A product takes 10 bits of the mantissa: to nearest, ties away from zero.
struct TF32 {
  using Element = float;
  using Wide = float;
  static constexpr int kStep = 8;
  static __device__ __forceinline__ float wide(float x) { return x; }
  // By a whole warp, each lane from a bank of shared memory of its own.
  static __device__ __forceinline__ unsigned read(const float* shared) {
    unsigned y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(*shared));
    return y;
  }
  static __device__ __forceinline__ void multiply(float (&sums)[4], const unsigned (&x)[4],
                                                  const unsigned (&y)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  }
};
struct F32 {
  using Element = float;
  using Wide = float;
  static __device__ __forceinline__ float wide(float x) { return x; }
};
struct F64 {
  using Element = double;
  using Wide = double;
  static __device__ __forceinline__ double wide(double x) { return x; }
};

}  // namespace aicf::gemm
