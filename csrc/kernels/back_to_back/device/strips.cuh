// The 16 rows of a warp in shared memory, on their way from or to memory: there whole rows lie one behind the
// other, in registers there are pairs of neighbours (warpgroups.cuh).
#pragma once
#include "kernels/back_to_back/device/warpgroups.cuh"

namespace aicf::chain {

// The compiler does not see that it is the same each time: addresses that follow from it are computed where
// they are used, and take no registers in between.
__device__ __forceinline__ int lane() {
  int lane = threadIdx.x % 32;
  asm volatile("" : "+r"(lane));
  return lane;
}

__device__ __forceinline__ void write_matrices(unsigned shared, const unsigned* from) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(from[0]),
               "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

// Has these computed here, instead of what they follow from kept until they are used, and what follows from
// them not before: a shuffle is what the assembler does not move across products.
template <int COUNT>
__device__ __forceinline__ void settle(unsigned (&bits)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) bits[i] = __shfl_sync(0xffffffffu, bits[i], lane());
}

// 16 rows of N elements of 16 bits, in panels of 64 columns as the tensor cores read them (Panels); those of
// the four warps of a warpgroup together are a matrix of 64 rows. It begins at a multiple of 1024 bytes.
template <int N>
struct Strip {
  static constexpr int kChunks = N / 8, kPanel = 16 * 128, kBytes = (N + 63) / 64 * kPanel;
  // A lane has one chunk of every kDown-th row; lanes that are left over have none.
  static constexpr int kDown = 32 / kChunks, kLanes = kDown * kChunks, kSteps = (16 + kDown - 1) / kDown;

  static __device__ __forceinline__ int at(int row, int chunk) {
    return chunk / 8 * kPanel + row * 128 + ((chunk % 8) ^ (row & 7)) * 16;
  }
  static __device__ __forceinline__ bool has(int lane, int step, int rows) {
    return (kLanes == 32 || lane < kLanes) && lane / kChunks + step * kDown < rows;
  }

  // Starts copying `rows` rows that begin at `global`; the others become zero.
  static __device__ __forceinline__ void fetch(unsigned char* shared, const void* global, int rows) {
    const int me = lane();
    const unsigned char* own = static_cast<const unsigned char*>(global) + me * 16;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (!has(me, i, 16)) continue;
      const int row = me / kChunks + i * kDown;
      copy_async<16>(shared + at(row, me % kChunks), row < rows ? own + i * kLanes * 16 : global,
                     row < rows ? 16 : 0);
    }
  }
  // The pairs of 16 columns from column 16 `step` on.
  static __device__ __forceinline__ void read(unsigned (&pairs)[4], const unsigned char* shared, int step) {
    const int me = lane();
    read_matrices<false>(pairs, shared + at(me % 16, 2 * step + me / 16));
  }
  static __device__ __forceinline__ void write(unsigned char* shared, const unsigned (&pairs)[N / 4]) {
    const int me = lane();
#pragma unroll
    for (int step = 0; step < N / 16; ++step)
      write_matrices(shared_address(shared + at(me % 16, 2 * step + me / 16)), pairs + 4 * step);
  }
  // Calls work(chunk, offset) for the chunks of this lane that lie in the first `rows` rows, each with the
  // bytes in front of it.
  template <class Work>
  static __device__ __forceinline__ void each(const unsigned char* shared, int rows, const Work& work) {
    const int me = lane();
#pragma unroll
    for (int i = 0; i < kSteps; ++i)
      if (has(me, i, rows))
        work(*reinterpret_cast<const uint4*>(shared + at(me / kChunks + i * kDown, me % kChunks)),
             (i * kLanes + me) * 16);
  }
  // Writes a chunk to rows that begin at `global`.
  static __device__ __forceinline__ void put(void* global, const uint4& chunk, int offset) {
    *reinterpret_cast<uint4*>(static_cast<unsigned char*>(global) + offset) = chunk;
  }
};

// 16 rows of N floats. What four lanes read of a row, 32 bytes, lies at another place in each of four rows.
template <int N>
struct WideStrip {
  static constexpr bool kTurned = N % 32 == 0;
  static constexpr int kPitch = kTurned ? 4 * N : 4 * N + 32, kBytes = 16 * kPitch;

  // Of eight columns.
  static __device__ __forceinline__ int at(int row, int block) {
    return row * kPitch + (kTurned ? block ^ (row & 3) : block) * 32;
  }
  static __device__ __forceinline__ void fetch(unsigned char* shared, const void* global, int rows) {
    const int me = lane();
    const unsigned char* own = static_cast<const unsigned char*>(global) + me * 16;
#pragma unroll
    for (int i = 0; i < N / 8; ++i) {
      const int chunk = i * 32 + me, row = chunk / (N / 4);
      copy_async<16>(shared + at(row, chunk % (N / 4) / 2) + chunk % 2 * 16,
                     row < rows ? own + i * 512 : global, row < rows ? 16 : 0);
    }
  }
  static __device__ __forceinline__ float2 read(const unsigned char* shared, int pair) {
    const int me = lane();
    return *reinterpret_cast<const float2*>(shared + at(me / 4 + pair % 2 * 8, pair / 2) + me % 4 * 8);
  }
};

// The columns that a lane adds up of 16 rows of N floats, which lie as pairs do: lanes of one column hand
// each other halves of theirs, as long as these can be halved, or add all.
template <int N>
struct Fold {
  static constexpr int kBlocks = N / 8;
  static constexpr int kHalvings = kBlocks % 8 == 0 ? 3 : kBlocks % 4 == 0 ? 2 : 1;
  static constexpr int kCount = N / 4 >> kHalvings;

  // `values` are those of two rows added up.
  static __device__ __forceinline__ void add(float (&sums)[kCount], float (&values)[N / 4]) {
    const int me = lane();
#pragma unroll
    for (int level = 0; level < 3; ++level) {
      const int distance = 16 >> level, count = N / 4 >> (level < kHalvings ? level + 1 : kHalvings);
      const bool upper = (me & distance) != 0;
#pragma unroll
      for (int i = 0; i < N / 8; ++i) {
        if (i >= count) break;
        if (level < kHalvings) {
          const float mine = upper ? values[i + count] : values[i];
          const float other = upper ? values[i] : values[i + count];
          values[i] = mine + __shfl_xor_sync(0xffffffffu, other, distance);
        } else {
          values[i] += __shfl_xor_sync(0xffffffffu, values[i], distance);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] += values[i];
  }
  // Whether the sums of this lane are not also those of another.
  static __device__ __forceinline__ bool owns() { return (lane() & (16 >> kHalvings) * 2 - 4) == 0; }
  static __device__ __forceinline__ int column(int i) {
    const int me = lane();
    int block = 0;
#pragma unroll
    for (int level = 0; level < kHalvings; ++level)
      if (me & 16 >> level) block += kBlocks >> (level + 1);
    return (block + i / 2) * 8 + me % 4 * 2 + i % 2;
  }
};

}  // namespace aicf::chain
