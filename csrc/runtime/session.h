// One training state and the right to use it: one call at a time over all steps that share memory, and what
// has happened to it so far.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "op/status.h"

namespace aicf {

// Memory that outlives a step: who uses it now, and the stream on which it was used last.
struct SharedMemory {
  std::atomic<bool> busy{false};
  Device* device = nullptr;  // null before the first use
  void* stream = nullptr;
};

class Session {
 public:
  // Guards memory of its own, and that of the sessions whose memory its steps use as well.
  explicit Session(const std::vector<std::shared_ptr<Session>>& sharing);

  // Refused in a forked child, and while another call is inside: nothing waits, so nothing can deadlock.
  Status enter();
  void leave() noexcept;

  // Called by an executor inside: what was enqueued on another stream before has ended when this returns.
  Status order(Device& device, void* stream);

  int64_t active = -1;  // index of the executor that was last given inputs or run; -1 before
  int64_t steps = 0;    // whole steps so far

 private:
  std::vector<std::shared_ptr<SharedMemory>> memory_;  // in the order of their addresses, each once
  const int fork_generation_;
};

}  // namespace aicf
