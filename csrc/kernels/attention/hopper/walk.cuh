// How blocks of threads of Hopper divide a head: kGroups warpgroups with 64 rows each, queries or keys, and a
// walk along the others kStep at a time, two tiles ahead in shared memory.
#pragma once
#include "kernels/attention/forward.cuh"
#include "kernels/attention/hopper/products.cuh"

namespace aicf::cuda {

// GROUPS warpgroups a block, BLOCKS of them at once on a processor.
template <class T_, int D_, int GROUPS, int BLOCKS, int STAGES>
struct Walk {
  using T = T_;
  static constexpr int kSize = D_, kGroups = GROUPS, kBlocks = BLOCKS, kRows = GROUPS * kGroupRows,
                       kStep = 64;
  static constexpr int kThreads = GROUPS * kGroupThreads, kStages = STAGES, kTiles = kStep / 8;
  using Own = Tile<kRows, kSize>;
  using Walked = Tile<kStep, kSize>;

  static __device__ __forceinline__ int group() { return static_cast<int>(threadIdx.x) / kGroupThreads; }
  // The first of the 64 rows of this warpgroup and of the 16 rows of this warp, in the block.
  static __device__ __forceinline__ int group_row() { return group() * kGroupRows; }
  static __device__ __forceinline__ int warp_row() {
    return static_cast<int>(threadIdx.x) / kWarp * kWarpRows;
  }

  // Panels begin at multiples of 1024 bytes: so much more is asked for.
  static __device__ __forceinline__ unsigned char* aligned(unsigned char* shared) {
    const unsigned at = gemm::shared_address(shared);
    return shared + (1023 - (at + 1023) % 1024);
  }
  static constexpr size_t shared_bytes(int own, int walked, int more) {
    return static_cast<size_t>(own) * Own::kBytes + kStages * (walked * Walked::kBytes + more) + 1024;
  }

  // begin_step(i) waits until the copies that `fetch` starts for step i have come, and starts those of step
  // i + 2: of what they overwrite, the tiles of step i + 2 - STAGES, every thread must be through with all
  // that it read in front of this call.
  template <class Fetch>
  static __device__ __forceinline__ void begin_step(int step, const Fetch& fetch) {
    wait_copies<1>();
    show_products();
    __syncthreads();
    fetch(step + 2);
    commit_copies();
  }
  template <class Fetch>
  static __device__ __forceinline__ void begin(const Fetch& fetch) {
    fetch(0);
    commit_copies();
    fetch(1);
    commit_copies();
  }
};

// Calls f(Walk) with heads of 64 or 128 elements.
template <class T, int GROUPS, int BLOCKS, int WIDE_GROUPS, int STAGES, class F>
Status with_walk(const AttentionProblem& p, F f) {
  if (std::max(p.size, p.value_size) <= 64) return f(Walk<T, 64, GROUPS, BLOCKS, STAGES>{});
  return f(Walk<T, 128, WIDE_GROUPS, 1, STAGES>{});
}

}  // namespace aicf::cuda
