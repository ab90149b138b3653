// GPUs that exchange bytes, one of each process of a group.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "op/variant.h"

namespace aicf {

// The status of this rank, and the place of those of all; null where none go along.
struct Statuses {
  const int64_t* from = nullptr;
  int64_t* to = nullptr;
};

// Lives as long as a launch or a group has it. What it has opened stays: the end of a library waits for ranks
// that may have gone, and they may still write to this GPU.
class Communicator {
 public:
  virtual ~Communicator() = default;
  // How the other processes of this host reach the mailbox of this GPU; empty where they cannot.
  virtual std::string address() const = 0;
  // Those of all ranks.
  virtual Status open(const std::vector<std::string>& addresses) = 0;
  // All goes through mailboxes from now on: all ranks have opened them.
  virtual void use_mailboxes() = 0;
  // By NCCL from now on: all ranks call it at the same time, with an id that one of them got. Returns when
  // all are there.
  virtual Status use_library(const std::string& id) = 0;
  // `bytes` of every rank to `to`, in their order, on the stream of `ctx`; the statuses likewise. Where any
  // byte of an aborted exchange has not come, no number of the statuses is 0.
  virtual Status all_gather(const void* from, void* to, size_t bytes, const Statuses& statuses,
                            const LaunchContext& ctx) const = 0;
  // `bytes` of every rank to `to`, in their order: those that it has for this one, `from` has as many for
  // each. Has a workspace of all_to_all_workspace().
  virtual Status all_to_all(const void* from, void* to, size_t bytes, const LaunchContext& ctx) const = 0;
  // Their mean to `to`, as numbers_of() says, in the order of ranks. Has a workspace of
  // all_reduce_workspace().
  virtual Status all_reduce(const void* from, void* to, DType dtype, size_t bytes, const Statuses& statuses,
                            const LaunchContext& ctx) const = 0;
  // From any thread: ends what waits for other ranks, on the device too. Nothing can be exchanged any more.
  virtual void abort() const = 0;
  // Why nothing can be exchanged any more.
  virtual Status state() const = 0;
  virtual int64_t ranks() const = 0;
};
using CommunicatorPointer = std::shared_ptr<Communicator>;

// An id of NCCL for a new communicator.
Status communicator_id(std::string* out);
// That of this process, with its GPU number `device`.
Status make_communicator(int device, int rank, int ranks, CommunicatorPointer* out);

using Communicators = std::map<std::string, CommunicatorPointer>;  // by the name of a group

// Those of the groups that are in scope in this thread: a launch is prepared with one of them, and keeps it.
Communicators& communicators();
Status communicator_of(const std::string& group, int64_t ranks, CommunicatorPointer* out);

}  // namespace aicf
