#include "runtime/session.h"

#include <algorithm>

#include "runtime/fork.h"

namespace aicf {

Session::Session(const std::vector<std::shared_ptr<Session>>& sharing)
    : memory_{std::make_shared<SharedMemory>()}, fork_generation_(fork_generation()) {
  for (const auto& other : sharing)
    memory_.insert(memory_.end(), other->memory_.begin(), other->memory_.end());
  std::sort(memory_.begin(), memory_.end());
  memory_.erase(std::unique(memory_.begin(), memory_.end()), memory_.end());
}

Status Session::enter() {
  if (fork_generation() != fork_generation_)
    return Status::state("this step was created before fork(); create the step in the child process");
  for (size_t i = 0; i < memory_.size(); ++i) {
    if (!memory_[i]->busy.exchange(true, std::memory_order_acquire)) continue;
    while (i-- > 0) memory_[i]->busy.store(false, std::memory_order_release);
    return Status::state("this step is in use by another thread; wait for its call to return");
  }
  return Status::ok();
}

void Session::leave() noexcept {
  for (const auto& memory : memory_) memory->busy.store(false, std::memory_order_release);
}

Status Session::order(Device& device, void* stream) {
  for (const auto& memory : memory_) {
    if (memory->device && memory->stream != stream) AICF_TRY(memory->device->synchronize(memory->stream));
    memory->device = &device;
    memory->stream = stream;
  }
  return Status::ok();
}

}  // namespace aicf
