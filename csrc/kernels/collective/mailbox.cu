// An exchange through mailboxes. Each block has a part of the bytes and goes in rounds: it writes a slice
// into the mailbox of every other rank, raises its flag there, waits for their flags of the round before, and
// copies what came with these while its own slice is under way. A mailbox has room for kSlots rounds. With
// the flag of round r a rank says too that it has copied what came up to round r - 2. A slice of round r
// takes the place of one of r - 4, which was copied before the flag of r - 2, and that one has been waited
// for. So no slice is written before it has been read, and a round needs one way and not two.
//
// Many bytes are moved by the copy engines instead, since blocks that wait for their flags would keep the
// multiprocessors from the products beside them. A piece is copied into a bay of every other rank; a flag
// says that it is there; a kernel takes it out of the bay. There are kDepth bays, and each exchange has a
// multiple of so many pieces, so a node of a graph always writes into the same bay. With the flag of piece p
// a rank says too that it has emptied the bay of p - 1. Piece p + kDepth - 1, which goes into the same bay,
// waits for that, and for no other: copies follow one another, on a stream of their own.
//
// Statuses that go along have a block of their own, the last one. They go after all pieces.
//
// Launches of one group run one after the other on each rank, and in the same order on all.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/collective/mailbox_memory.cuh"
#include "kernels/collective/mailbox_words.cuh"
#include "kernels/common/launch.cuh"

namespace aicf::cuda {
namespace {

using namespace mailboxes;

constexpr size_t kMany = size_t{4} << 20;  // bytes from which on the copy engines move them

// What this block exchanges: part `part` of so many. What x has for each rank is `apart` words from the next.
// False where some of it has not come.
template <class Word, class To>
__device__ bool exchange(const Neighbours& neighbours, int rank, int ranks, const Word* x, int64_t apart,
                         const To& to, int64_t words, int64_t part, int64_t parts,
                         const volatile int* aborted) {
  constexpr int64_t kSome = kSlice / sizeof(Word);
  constexpr int kOwn = static_cast<int>(kSome / kThreads);  // words of a slice and a thread
  char* own = neighbours.mailbox[rank];
  const uint32_t before = *rounds_of(own, ranks, blockIdx.x);
  const int64_t begin = part * kSome, step = parts * kSome;
  const auto rounds = static_cast<uint32_t>(words > begin ? (words - begin + step - 1) / step : 0);
  const int other = static_cast<int>(threadIdx.x);
  Word last[kOwn], next[kOwn];
  bool here = true;
  for (uint32_t n = 0; n <= rounds; ++n) {  // writes slice n, and takes slice n - 1
    if (n < rounds) {
      const int64_t first = begin + n * step, count = min(kSome, words - first);
#pragma unroll
      for (int k = 0; k < kOwn; ++k) {
        const int64_t i = threadIdx.x + k * kThreads;
        if (i >= count) break;
        next[k] = x[rank * apart + first + i];
        for (int far = 1; here && far < ranks; ++far) {
          const int there = (rank + far) % ranks;
          char* slice = slice_of(neighbours.mailbox[there], ranks, before + n + 1, rank, blockIdx.x);
          reinterpret_cast<Word*>(slice)[i] = apart ? x[there * apart + first + i] : next[k];
        }
      }
      // What the threads of the block wrote before the barrier is there before the flag: it is released.
      __syncthreads();
      if (here && other < ranks && other != rank)
        raise(flag_of(neighbours.mailbox[other], rank, blockIdx.x), before + n + 1);
    }
    if (n > 0) {
      if (here && other < ranks && other != rank)
        here = is_raised(flag_of(own, other, blockIdx.x), before + n, aborted);
      here = __syncthreads_and(here);
      const int64_t first = begin + (n - 1) * step, count = min(kSome, words - first);
#pragma unroll
      for (int k = 0; k < kOwn; ++k) {
        const int64_t i = threadIdx.x + k * kThreads;
        if (i >= count) break;
        to.take(first + i, ranks, here, [&](int from) {
          if (from == rank) return last[k];
          const char* slice = slice_of(own, ranks, before + n, from, blockIdx.x);
          return __ldcg(reinterpret_cast<const Word*>(slice) + i);
        });
      }
    }
#pragma unroll
    for (int k = 0; k < kOwn; ++k) last[k] = next[k];
  }
  __syncthreads();
  // Also of what was aborted: a later launch must not take the flag of a round of this one for its own.
  if (threadIdx.x == 0) *rounds_of(own, ranks, blockIdx.x) = before + rounds;
  return here;
}

template <class Word, class To>
__global__ void __launch_bounds__(kThreads)
    exchange_kernel(const __grid_constant__ Neighbours neighbours, int rank, int ranks, const Word* x,
                    int64_t apart, To to, int64_t words, Statuses statuses, const volatile int* aborted) {
  dependency_wait();
  const unsigned blocks = statuses.to ? gridDim.x - 1 : gridDim.x;
  const bool has_statuses = blockIdx.x == blocks;
  const bool here = has_statuses
                        ? exchange(neighbours, rank, ranks, statuses.from, 0,
                                   Rows<int64_t>{statuses.to, kStatusNumbers}, kStatusNumbers, 0, 1, aborted)
                        : exchange(neighbours, rank, ranks, x, apart, to, words, blockIdx.x, blocks, aborted);
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
__global__ void meet_kernel(const __grid_constant__ Neighbours neighbours, int rank, int ranks,
                            const volatile int* aborted) {
  dependency_wait();
  Meeting* own = meeting_of(neighbours.mailbox[rank], ranks);
  const uint32_t piece = own->met + 1;
  const int other = static_cast<int>(threadIdx.x);
  bool here = true;
  __syncwarp();
  if (other < ranks && other != rank) {
    raise(&meeting_of(neighbours.mailbox[other], ranks)->raised[rank], piece);
    here = is_raised(&own->raised[other], piece, aborted);
  }
  here = __all_sync(0xffffffffu, here);
  if (other != 0) return;
  own->met = piece;
  own->well = here;
  if (!here) *lost_of(neighbours.mailbox[rank], ranks) = 1;
}

// What is in the bays, with x, the own part: `words` of each, `first` of them on.
template <class To>
__global__ void __launch_bounds__(kThreads)
    empty_bays_kernel(const __grid_constant__ Neighbours neighbours, int rank, int ranks, size_t piece,
                      const uint4* x, To to, int64_t first, int64_t words) {
  dependency_wait();
  char* own = neighbours.mailbox[rank];
  const bool well = meeting_of(own, ranks)->well != 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < words; i += step)
    to.take(first + i, ranks, well, [&](int from) {
      return from == rank ? x[first + i]
                          : __ldcg(reinterpret_cast<const uint4*>(bay_of(own, ranks, piece, from)) + i);
    });
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
  const bool is_there =
      cudaMalloc(&memory, bytes_of(ranks)) == cudaSuccess &&
      cudaMemset(memory, 0, bytes_of(ranks)) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess &&
      cudaIpcGetMemHandle(&handle, memory) == cudaSuccess &&
      cudaHostAlloc(&word, sizeof(int), cudaHostAllocMapped) == cudaSuccess && made->make_streams();
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

bool Mailbox::make_streams() {
  bool well = true;
  for (cudaStream_t* stream : {&copying_, &emptying_})
    well = well && cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking) == cudaSuccess;
  std::vector<cudaEvent_t*> events{&begun_, &copied_, &emptied_};
  for (cudaEvent_t& met : met_) events.push_back(&met);
  for (cudaEvent_t* event : events)
    well = well && cudaEventCreateWithFlags(event, cudaEventDisableTiming) == cudaSuccess;
  return well;
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

template <class To>
Status Mailbox::run_copies(const Given& from, const To& to, size_t bytes, const LaunchContext& ctx) const {
  constexpr auto kWord = static_cast<int64_t>(sizeof(uint4));
  const auto words = static_cast<int64_t>(bytes) / kWord;
  const int64_t pieces =
      kDepth * ceil_div<int64_t>(static_cast<int64_t>(bytes), kDepth * static_cast<int64_t>(bay_of(ranks_)));
  const int64_t most = ceil_div(words, pieces);
  const auto* x = static_cast<const uint4*>(from.from);
  const auto part = [&](int rank) { return x + static_cast<size_t>(rank) * from.apart / sizeof(uint4); };
  const auto stream = static_cast<cudaStream_t>(ctx.stream);
  LaunchContext beside = ctx;
  beside.stream = emptying_;
  AICF_CUDA_TRY(cudaEventRecord(begun_, stream));
  AICF_CUDA_TRY(cudaStreamWaitEvent(copying_, begun_));
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t first = std::min(piece * most, words), count = std::min(most, words - first);
    if (piece >= kDepth - 1)
      AICF_CUDA_TRY(cudaStreamWaitEvent(copying_, met_[(piece - kDepth + 1) % kDepth]));
    for (int far = 1; count > 0 && far < ranks_; ++far) {
      const int there = (rank_ + far) % ranks_;
      void* bay = bay_of(neighbours_.mailbox[there], ranks_, static_cast<size_t>(piece), rank_);
      AICF_CUDA_TRY(cudaMemcpyAsync(bay, part(there) + first, static_cast<size_t>(count * kWord),
                                    cudaMemcpyDefault, copying_));
    }
    AICF_CUDA_TRY(cudaEventRecord(copied_, copying_));
    AICF_CUDA_TRY(cudaStreamWaitEvent(stream, copied_));
    if (piece > 0) AICF_CUDA_TRY(cudaStreamWaitEvent(stream, emptied_));
    AICF_TRY(launch(ctx, 1, kWarp, 0, meet_kernel, neighbours_, rank_, ranks_, aborted_));
    AICF_CUDA_TRY(cudaEventRecord(met_[piece % kDepth], stream));
    AICF_CUDA_TRY(cudaStreamWaitEvent(emptying_, met_[piece % kDepth]));
    AICF_TRY(launch(beside, kBlocks, kThreads, 0, empty_bays_kernel<To>, neighbours_, rank_, ranks_,
                    static_cast<size_t>(piece), part(rank_), to, first, count));
    AICF_CUDA_TRY(cudaEventRecord(emptied_, emptying_));
  }
  AICF_CUDA_TRY(cudaStreamWaitEvent(stream, emptied_));
  return Status::ok();
}

template <class Word, class To>
Status Mailbox::run_blocks(const Given& from, const To& to, size_t bytes, const Statuses& statuses,
                           const LaunchContext& ctx) const {
  const auto words = static_cast<int64_t>(bytes / sizeof(Word));
  const auto blocks = std::min<int64_t>(kBlocks, ceil_div<int64_t>(static_cast<int64_t>(bytes), kSlice));
  return launch(ctx, static_cast<unsigned>(blocks) + (statuses.to ? 1 : 0), kThreads, 0,
                exchange_kernel<Word, To>, neighbours_, rank_, ranks_, static_cast<const Word*>(from.from),
                static_cast<int64_t>(from.apart / sizeof(Word)), to, words, statuses, aborted_);
}

// `wide` takes 16 bytes at a time, `narrow` is for what lies otherwise.
template <class Wide, class Narrow>
Status Mailbox::run(const Given& from, const void* to, const Wide& wide, const Narrow& narrow, size_t bytes,
                    const Statuses& statuses, const LaunchContext& ctx) const {
  if (!fits<uint4>(from.from, to, bytes)) return narrow();
  if (bytes < kMany) return run_blocks<uint4>(from, wide, bytes, statuses, ctx);
  AICF_TRY(run_copies(from, wide, bytes, ctx));
  return statuses.to ? run_blocks<uint4>(from, wide, 0, statuses, ctx) : Status::ok();
}

Status Mailbox::rows(const Given& from, void* to, size_t bytes, const Statuses& statuses,
                     const LaunchContext& ctx) const {
  const auto by = [&](auto word) {
    using Word = decltype(word);
    return run_blocks<Word>(from,
                            Rows<Word>{static_cast<Word*>(to), static_cast<int64_t>(bytes / sizeof(Word))},
                            bytes, statuses, ctx);
  };
  const Rows<uint4> wide{static_cast<uint4*>(to), static_cast<int64_t>(bytes / sizeof(uint4))};
  const auto narrow = [&] { return fits<uint32_t>(from.from, to, bytes) ? by(uint32_t{}) : by(uint8_t{}); };
  return run(from, to, wide, narrow, bytes, statuses, ctx);
}

Status Mailbox::all_gather(const void* from, void* to, size_t bytes, const Statuses& statuses,
                           const LaunchContext& ctx) const {
  return rows({from}, to, bytes, statuses, ctx);
}

Status Mailbox::all_to_all(const void* from, void* to, size_t bytes, const LaunchContext& ctx) const {
  return rows({from, bytes}, to, bytes, {}, ctx);
}

Status Mailbox::all_reduce(const void* from, void* to, DType dtype, size_t bytes, const Statuses& statuses,
                           const LaunchContext& ctx) const {
  return with_float_type(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Word =
        std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
    auto* y = static_cast<Compute<T>*>(to);
    const auto narrow = [&] { return run_blocks<Word>({from}, Mean<Word, T>{y}, bytes, statuses, ctx); };
    return run({from}, to, Mean<uint4, T>{y}, narrow, bytes, statuses, ctx);
  });
}

}  // namespace aicf::cuda
