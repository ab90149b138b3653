// Memory of each GPU into which the other GPUs of its host write: one launch exchanges few bytes in little
// more than the time that they need to be there.
#pragma once
#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/collective/communicators.h"
#include "op/variant.h"

namespace aicf::cuda {

constexpr int kMostNeighbours = 8;

struct Neighbours {
  char* mailbox[kMostNeighbours];  // by rank, as this GPU sees them
};

// What a rank gives to each: the same, or parts that are `apart` bytes from one another.
struct Given {
  const void* from;
  size_t apart = 0;
};

class Mailbox {
 public:
  static constexpr int kDepth = 4;  // pieces of an exchange that may be under way

  // On the current device; null where there are too many ranks or no memory that another process can open.
  static std::unique_ptr<Mailbox> make(int rank, int ranks);

  // For the other processes of this host.
  const std::string& address() const { return address_; }
  // With the addresses of all ranks, on the device that it was made on.
  Status open(const std::vector<std::string>& addresses);

  // As Communicator says. What was aborted fills `to` with ones.
  Status all_gather(const void* from, void* to, size_t bytes, const Statuses& statuses,
                    const LaunchContext& ctx) const;
  Status all_to_all(const void* from, void* to, size_t bytes, const LaunchContext& ctx) const;
  Status all_reduce(const void* from, void* to, DType dtype, size_t bytes, const Statuses& statuses,
                    const LaunchContext& ctx) const;
  void abort() const { *aborted_ = 1; }

 private:
  Status rows(const Given& from, void* to, size_t bytes, const Statuses& statuses,
              const LaunchContext& ctx) const;
  template <class Wide, class Narrow>
  Status run(const Given& from, const void* to, const Wide& wide, const Narrow& narrow, size_t bytes,
             const Statuses& statuses, const LaunchContext& ctx) const;
  template <class Word, class To>
  Status run_blocks(const Given& from, const To& to, size_t bytes, const Statuses& statuses,
                    const LaunchContext& ctx) const;
  template <class To>
  Status run_copies(const Given& from, const To& to, size_t bytes, const LaunchContext& ctx) const;
  bool make_streams();

  Mailbox(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  const int rank_, ranks_;
  Neighbours neighbours_{};
  volatile int* aborted_ = nullptr;  // memory of the host, which the GPU reads
  cudaStream_t copying_ = nullptr, emptying_ = nullptr;
  cudaEvent_t begun_ = nullptr, copied_ = nullptr, emptied_ = nullptr, met_[kDepth] = {};
  std::string address_;
};

}  // namespace aicf::cuda
