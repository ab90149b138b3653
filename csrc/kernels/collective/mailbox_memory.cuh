// Where what stands in a mailbox, and the flags in it.
#pragma once
#include "kernels/collective/mailbox.h"

namespace aicf::cuda::mailboxes {

constexpr int kThreads = 512, kBlocks = 128;  // about one for each multiprocessor of a large chip
constexpr int kRows = kBlocks + 1;            // and the block of the statuses
constexpr size_t kSlice = 8192;               // bytes of a block and a round: 16 of each thread
constexpr unsigned kSlots = 4;                // rounds in a mailbox
constexpr size_t kBays = size_t{64} << 20;    // bytes of all bays of a mailbox
constexpr int64_t kDepth = Mailbox::kDepth;   // bays of each rank
constexpr int kPatience = 1024;               // looks at a flag between two at what the host says

// A mailbox: flags[rank][block], which the others raise; rounds[block] and `lost`, its own;
// slices[kSlots][rank][block].
__device__ __forceinline__ uint32_t* flag_of(char* mailbox, int rank, unsigned block) {
  return reinterpret_cast<uint32_t*>(mailbox) + rank * kRows + block;
}
__device__ __forceinline__ uint32_t* rounds_of(char* mailbox, int ranks, unsigned block) {
  return flag_of(mailbox, ranks, block);
}
// Not 0 once a block has given up, for good.
__device__ __forceinline__ volatile uint32_t* lost_of(char* mailbox, int ranks) {
  return flag_of(mailbox, ranks + 1, 0);
}
__host__ __device__ constexpr size_t slices_at(int ranks) {
  return ((static_cast<size_t>(ranks + 1) * kRows + 1) * sizeof(uint32_t) + 255) / 256 * 256;
}
__device__ __forceinline__ char* slice_of(char* mailbox, int ranks, uint32_t round, int rank,
                                          unsigned block) {
  return mailbox + slices_at(ranks) + ((round % kSlots * ranks + rank) * kRows + block) * kSlice;
}
// Then the meeting: how many pieces have come from all, flags that the others raise, and whether the last
// piece has come; and bays[kDepth][rank].
__host__ __device__ constexpr size_t meeting_at(int ranks) {
  return slices_at(ranks) + size_t{kSlots} * ranks * kRows * kSlice;
}
__host__ __device__ constexpr size_t bays_at(int ranks) { return meeting_at(ranks) + 256; }
__host__ __device__ constexpr size_t bay_of(int ranks) {
  return kBays / kDepth / static_cast<size_t>(ranks) / 256 * 256;
}
constexpr size_t bytes_of(int ranks) {
  return bays_at(ranks) + kDepth * static_cast<size_t>(ranks) * bay_of(ranks);
}
static_assert((kMostNeighbours + 2) * sizeof(uint32_t) <= 256);

struct Meeting {
  uint32_t met, raised[kMostNeighbours], well;
};
__host__ __device__ __forceinline__ Meeting* meeting_of(char* mailbox, int ranks) {
  return reinterpret_cast<Meeting*>(mailbox + meeting_at(ranks));
}
__host__ __device__ __forceinline__ char* bay_of(char* mailbox, int ranks, size_t piece, int rank) {
  return mailbox + bays_at(ranks) +
         (piece % kDepth * static_cast<size_t>(ranks) + static_cast<size_t>(rank)) * bay_of(ranks);
}

__device__ __forceinline__ void raise(uint32_t* flag, uint32_t round) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(round) : "memory");
}

// False once the host has given up.
__device__ __forceinline__ bool is_raised(const uint32_t* flag, uint32_t round, const volatile int* aborted) {
  for (int looks = 0;; looks = looks == kPatience ? 0 : looks + 1) {
    uint32_t seen;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    if (static_cast<int32_t>(seen - round) >= 0) return true;
    if (looks == kPatience && *aborted) return false;
  }
}

}  // namespace aicf::cuda::mailboxes
