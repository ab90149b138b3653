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

class Mailbox {
 public:
  // On the current device; null where there are too many ranks or no memory that another process can open.
  static std::unique_ptr<Mailbox> make(int rank, int ranks);

  // For the other processes of this host.
  const std::string& address() const { return address_; }
  // With the addresses of all ranks, on the device that it was made on.
  Status open(const std::vector<std::string>& addresses);

  // As Communicator says. What was aborted fills `to` with ones.
  Status all_gather(const void* from, void* to, size_t bytes, const Statuses& statuses,
                    const LaunchContext& ctx) const;
  void abort() const { *aborted_ = 1; }

 private:
  Status gather_by_copies(const void* from, void* to, size_t bytes, const LaunchContext& ctx) const;

  Mailbox(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  const int rank_, ranks_;
  Neighbours neighbours_{};
  volatile int* aborted_ = nullptr;  // memory of the host, which the GPU reads
  std::string address_;
};

}  // namespace aicf::cuda
