// An exchange through mailboxes. Each block has a part of the bytes and goes in rounds: it writes a slice
// into the mailbox of every other rank, raises its flag there, waits for theirs, and copies what has come. Of
// two rounds the slices are apart. A rank raises its flag of a round once it has copied what came in the
// round before, so no slice is written before it has been read, and a round needs one way and not two.
//
// Statuses that go along have a block of their own, the last one.
//
// Launches of one group run one after the other on each rank, and in the same order on all.
#include <algorithm>
#include <cstring>

#include "kernels/collective/mailbox.h"
#include "kernels/common/launch.cuh"

namespace aicf::cuda {
namespace {

constexpr int kThreads = 512, kBlocks = 64;  // few enough to be on the chip together
constexpr int kRows = kBlocks + 1;           // and the block of the statuses
constexpr size_t kSlice = 16384;             // bytes of a block and a round
constexpr int kPatience = 1024;              // looks at a flag between two at what the host says

// A mailbox: flags[rank][block], which the others raise; rounds[block] and `lost`, its own;
// slices[2][rank][block].
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
  return mailbox + slices_at(ranks) + (((round & 1) * ranks + rank) * kRows + block) * kSlice;
}
constexpr size_t bytes_of(int ranks) { return slices_at(ranks) + size_t{2} * ranks * kRows * kSlice; }

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

template <class Word>
__device__ Word ones() {
  Word word;
  memset(&word, 0xff, sizeof word);
  return word;
}

// What this block exchanges: part `part` of so many. False where some of it has not come.
template <class Word>
__device__ bool exchange(const Neighbours& neighbours, int rank, int ranks, const Word* x, Word* y,
                         int64_t words, int64_t part, int64_t parts, const volatile int* aborted) {
  constexpr int64_t kSome = kSlice / sizeof(Word);
  char* own = neighbours.mailbox[rank];
  uint32_t round = *rounds_of(own, ranks, blockIdx.x);
  bool here = true;
  for (int64_t first = part * kSome; first < words; first += parts * kSome) {
    const int64_t count = min(kSome, words - first);
    ++round;
    for (int64_t i = threadIdx.x; here && i < count; i += kThreads) {
      const Word word = x[first + i];
      y[rank * words + first + i] = word;
      for (int far = 1; far < ranks; ++far) {
        char* mailbox = neighbours.mailbox[(rank + far) % ranks];
        reinterpret_cast<Word*>(slice_of(mailbox, ranks, round, rank, blockIdx.x))[i] = word;
      }
    }
    __threadfence_system();
    __syncthreads();
    const int other = static_cast<int>(threadIdx.x);
    if (here && other < ranks && other != rank) {
      raise(flag_of(neighbours.mailbox[other], rank, blockIdx.x), round);
      here = is_raised(flag_of(own, other, blockIdx.x), round, aborted);
    }
    here = __syncthreads_and(here);
    for (int far = 1; far < ranks; ++far) {
      const int from = (rank + far) % ranks;
      const auto* slice = reinterpret_cast<const Word*>(slice_of(own, ranks, round, from, blockIdx.x));
      for (int64_t i = threadIdx.x; i < count; i += kThreads)
        y[from * words + first + i] = here ? __ldcg(slice + i) : ones<Word>();
    }
    if (!here)
      for (int64_t i = threadIdx.x; i < count; i += kThreads) y[rank * words + first + i] = ones<Word>();
  }
  __syncthreads();
  // Also of what was aborted: a later launch must not take the flag of a round of this one for its own.
  if (threadIdx.x == 0) *rounds_of(own, ranks, blockIdx.x) = round;
  return here;
}

template <class Word>
__global__ void __launch_bounds__(kThreads)
    all_gather_kernel(Neighbours neighbours, int rank, int ranks, const Word* x, Word* y, int64_t words,
                      Statuses statuses, const volatile int* aborted) {
  dependency_wait();
  const unsigned blocks = statuses.to ? gridDim.x - 1 : gridDim.x;
  const bool has_statuses = blockIdx.x == blocks;
  const bool here = has_statuses
                        ? exchange<int64_t>(neighbours, rank, ranks, statuses.from, statuses.to,
                                            kStatusNumbers, 0, 1, aborted)
                        : exchange(neighbours, rank, ranks, x, y, words, blockIdx.x, blocks, aborted);
  // The statuses hold only where every block has what it waits for. The block that has them writes them, then
  // looks at `lost`; one that gives up sets `lost`, then overwrites them. With a fence between, one of both
  // comes after the other. Thread i has number i of each status all the way.
  const int number = static_cast<int>(threadIdx.x);
  if ((here && !has_statuses) || number >= kStatusNumbers) return;
  volatile uint32_t* lost = lost_of(neighbours.mailbox[rank], ranks);
  if (!here) *lost = 1;
  if (!statuses.to) return;
  __threadfence();
  if (*lost)
    for (int of = 0; of < ranks; ++of) statuses.to[of * kStatusNumbers + number] = -1;
}

template <class Word>
bool fits(const void* from, const void* to, size_t bytes) {
  const auto of = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  return (of(from) | of(to) | bytes) % sizeof(Word) == 0;
}

}  // namespace

std::unique_ptr<Mailbox> Mailbox::make(int rank, int ranks) {
  if (ranks > kMostNeighbours) return nullptr;
  std::unique_ptr<Mailbox> made(new Mailbox(rank, ranks));
  void *memory = nullptr, *word = nullptr;
  cudaIpcMemHandle_t handle;
  const bool is_there = cudaMalloc(&memory, bytes_of(ranks)) == cudaSuccess &&
                        cudaMemset(memory, 0, bytes_of(ranks)) == cudaSuccess &&
                        cudaDeviceSynchronize() == cudaSuccess &&
                        cudaIpcGetMemHandle(&handle, memory) == cudaSuccess &&
                        cudaHostAlloc(&word, sizeof(int), cudaHostAllocMapped) == cudaSuccess;
  if (!is_there) {
    (void)cudaFree(memory);
    (void)cudaGetLastError();
    return nullptr;
  }
  made->neighbours_.mailbox[rank] = static_cast<char*>(memory);
  made->aborted_ = static_cast<volatile int*>(word);
  *made->aborted_ = 0;
  made->address_.assign(reinterpret_cast<const char*>(&handle), sizeof handle);
  return made;
}

Status Mailbox::open(const std::vector<std::string>& addresses) {
  if (addresses.size() != static_cast<size_t>(ranks_))
    return Status::invalid("expected the addresses of " + std::to_string(ranks_) + " ranks, got " +
                           std::to_string(addresses.size()));
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    cudaIpcMemHandle_t handle;
    if (addresses[rank].size() != sizeof handle) return Status::invalid("expected addresses of mailboxes");
    std::memcpy(&handle, addresses[rank].data(), sizeof handle);
    void* memory = nullptr;
    AICF_CUDA_TRY(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
    neighbours_.mailbox[rank] = static_cast<char*>(memory);
  }
  return Status::ok();
}

Status Mailbox::all_gather(const void* from, void* to, size_t bytes, const Statuses& statuses,
                           const LaunchContext& ctx) const {
  const auto run = [&](auto word) {
    using Word = decltype(word);
    const auto words = static_cast<int64_t>(bytes / sizeof(Word));
    const auto blocks = std::min<int64_t>(kBlocks, ceil_div<int64_t>(static_cast<int64_t>(bytes), kSlice));
    return launch(ctx, static_cast<unsigned>(blocks) + (statuses.to ? 1 : 0), kThreads, 0,
                  all_gather_kernel<Word>, neighbours_, rank_, ranks_, static_cast<const Word*>(from),
                  static_cast<Word*>(to), words, statuses, aborted_);
  };
  if (fits<uint4>(from, to, bytes)) return run(uint4{});
  return fits<uint32_t>(from, to, bytes) ? run(uint32_t{}) : run(uint8_t{});
}

}  // namespace aicf::cuda
