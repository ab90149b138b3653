// An exchange through mailboxes. Each block has a part of the bytes and goes in rounds: it writes a slice
// into the mailbox of every other rank, raises its flag there, waits for their flags of the round before, and
// copies what came with these while its own slice is under way. A mailbox has room for kSlots rounds. With
// the flag of round r a rank says too that it has copied what came up to round r - 2. A slice of round r
// takes the place of one of r - 4, which was copied before the flag of r - 2, and that one has been waited
// for. So no slice is written before it has been read, and a round needs one way and not two.
//
// Many bytes are moved by the copy engines instead, since blocks that wait for their flags would keep the
// multiprocessors from the products beside them. A piece is copied into a bay of every other rank; a flag
// says that it is there; a kernel brings it from the bay to its place. There are two bays, and each exchange
// has an even number of pieces, so a node of a graph always writes into the same bay. With the flag of piece
// p a rank says too that it has emptied the bay of p - 2: so the flags of p - 1 have been seen, and piece p +
// 1 goes where p - 1 was.
//
// Statuses that go along have a block of their own, the last one. They go after all pieces.
//
// Launches of one group run one after the other on each rank, and in the same order on all.
#include <algorithm>
#include <cstring>

#include "kernels/collective/mailbox.h"
#include "kernels/common/launch.cuh"

namespace aicf::cuda {
namespace {

constexpr int kThreads = 512, kBlocks = 128;  // about one for each multiprocessor of a large chip
constexpr int kRows = kBlocks + 1;            // and the block of the statuses
constexpr size_t kSlice = 8192;               // bytes of a block and a round: 16 of each thread
constexpr unsigned kSlots = 4;                // rounds in a mailbox
constexpr size_t kBays = size_t{64} << 20;    // bytes of all bays of a mailbox
constexpr size_t kMany = size_t{4} << 20;     // bytes from which on the copy engines move them
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
// piece has come; and bays[2][rank].
__host__ __device__ constexpr size_t meeting_at(int ranks) {
  return slices_at(ranks) + size_t{kSlots} * ranks * kRows * kSlice;
}
__host__ __device__ constexpr size_t bays_at(int ranks) { return meeting_at(ranks) + 256; }
__host__ __device__ constexpr size_t bay_of(int ranks) {
  return kBays / 2 / static_cast<size_t>(ranks) / 256 * 256;
}
constexpr size_t bytes_of(int ranks) {
  return bays_at(ranks) + 2 * static_cast<size_t>(ranks) * bay_of(ranks);
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
         (piece % 2 * static_cast<size_t>(ranks) + static_cast<size_t>(rank)) * bay_of(ranks);
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
  const uint32_t before = *rounds_of(own, ranks, blockIdx.x);
  const int64_t begin = part * kSome, step = parts * kSome;
  const auto rounds = static_cast<uint32_t>(words > begin ? (words - begin + step - 1) / step : 0);
  const int other = static_cast<int>(threadIdx.x);
  bool here = true;
  for (uint32_t n = 0; n <= rounds; ++n) {  // writes slice n, and copies slice n - 1
    if (n < rounds) {
      const int64_t first = begin + n * step, count = min(kSome, words - first);
      for (int64_t i = threadIdx.x; here && i < count; i += kThreads) {
        const Word word = x[first + i];
        y[rank * words + first + i] = word;
        for (int far = 1; far < ranks; ++far) {
          char* mailbox = neighbours.mailbox[(rank + far) % ranks];
          reinterpret_cast<Word*>(slice_of(mailbox, ranks, before + n + 1, rank, blockIdx.x))[i] = word;
        }
      }
      __threadfence_system();
      __syncthreads();
      if (here && other < ranks && other != rank)
        raise(flag_of(neighbours.mailbox[other], rank, blockIdx.x), before + n + 1);
    }
    if (n == 0) continue;
    if (here && other < ranks && other != rank)
      here = is_raised(flag_of(own, other, blockIdx.x), before + n, aborted);
    here = __syncthreads_and(here);
    const int64_t first = begin + (n - 1) * step, count = min(kSome, words - first);
    for (int far = 1; far < ranks; ++far) {
      const int from = (rank + far) % ranks;
      const auto* slice = reinterpret_cast<const Word*>(slice_of(own, ranks, before + n, from, blockIdx.x));
      for (int64_t i = threadIdx.x; i < count; i += kThreads)
        y[from * words + first + i] = here ? __ldcg(slice + i) : ones<Word>();
    }
    if (!here)
      for (int64_t i = threadIdx.x; i < count; i += kThreads) y[rank * words + first + i] = ones<Word>();
  }
  __syncthreads();
  // Also of what was aborted: a later launch must not take the flag of a round of this one for its own.
  if (threadIdx.x == 0) *rounds_of(own, ranks, blockIdx.x) = before + rounds;
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

// One warp. What was copied to the others before is there, and what they copied is here.
__global__ void meet_kernel(Neighbours neighbours, int rank, int ranks, const volatile int* aborted) {
  dependency_wait();
  Meeting* own = meeting_of(neighbours.mailbox[rank], ranks);
  const uint32_t piece = own->met + 1;
  const int other = static_cast<int>(threadIdx.x);
  bool here = true;
  __syncwarp();
  if (other < ranks && other != rank) {
    __threadfence_system();
    raise(&meeting_of(neighbours.mailbox[other], ranks)->raised[rank], piece);
    here = is_raised(&own->raised[other], piece, aborted);
  }
  here = __all_sync(0xffffffffu, here);
  if (other != 0) return;
  own->met = piece;
  own->well = here;
  if (!here) *lost_of(neighbours.mailbox[rank], ranks) = 1;
}

// From the bays, and from x the own part, to `y[rank][whole]`: `words` of each, `first` of them on.
__global__ void __launch_bounds__(kThreads)
    empty_bays_kernel(Neighbours neighbours, int rank, int ranks, size_t piece, const uint4* x, uint4* y,
                      int64_t whole, int64_t first, int64_t words) {
  dependency_wait();
  const bool well = meeting_of(neighbours.mailbox[rank], ranks)->well != 0;
  for (int from = 0; from < ranks; ++from) {
    const auto* bay =
        from == rank ? x + first
                     : reinterpret_cast<const uint4*>(bay_of(neighbours.mailbox[rank], ranks, piece, from));
    uint4* const to = y + from * whole + first;
    const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
#pragma unroll 4
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < words; i += step)
      to[i] = well ? __ldcg(bay + i) : ones<uint4>();
  }
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

Status Mailbox::gather_by_copies(const void* from, void* to, size_t bytes, const LaunchContext& ctx) const {
  constexpr auto kWord = static_cast<int64_t>(sizeof(uint4));
  const auto words = static_cast<int64_t>(bytes) / kWord;
  const int64_t pairs =
      ceil_div<int64_t>(static_cast<int64_t>(bytes), static_cast<int64_t>(2 * bay_of(ranks_)));
  const int64_t most = ceil_div(words, 2 * pairs);
  const auto* x = static_cast<const uint4*>(from);
  for (int64_t piece = 0; piece < 2 * pairs; ++piece) {
    const int64_t first = std::min(piece * most, words), count = std::min(most, words - first);
    for (int far = 1; count > 0 && far < ranks_; ++far) {
      char* mailbox = neighbours_.mailbox[(rank_ + far) % ranks_];
      AICF_CUDA_TRY(cudaMemcpyAsync(bay_of(mailbox, ranks_, static_cast<size_t>(piece), rank_), x + first,
                                    static_cast<size_t>(count * kWord), cudaMemcpyDefault,
                                    static_cast<cudaStream_t>(ctx.stream)));
    }
    AICF_TRY(launch(ctx, 1, kWarp, 0, meet_kernel, neighbours_, rank_, ranks_, aborted_));
    AICF_TRY(launch(ctx, kBlocks, kThreads, 0, empty_bays_kernel, neighbours_, rank_, ranks_,
                    static_cast<size_t>(piece), x, static_cast<uint4*>(to), words, first, count));
  }
  return Status::ok();
}

Status Mailbox::all_gather(const void* from, void* to, size_t bytes, const Statuses& statuses,
                           const LaunchContext& ctx) const {
  if (bytes >= kMany && fits<uint4>(from, to, bytes)) {
    AICF_TRY(gather_by_copies(from, to, bytes, ctx));
    bytes = 0;
    if (!statuses.to) return Status::ok();
  }
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
