#include "kernels/collective/communicators.h"

namespace aicf {

Communicators& communicators() {
  thread_local Communicators those;
  return those;
}

Status communicator_of(const std::string& group, int64_t ranks, CommunicatorPointer* out) {
  const auto found = communicators().find(group);
  if (found == communicators().end())
    return Status::state("the launch exchanges among GPUs of the group '" + group + "', which is not here");
  if (found->second->ranks() != ranks)
    return Status::state("the group '" + group + "' has " + std::to_string(found->second->ranks()) +
                         " ranks, the launch was made for " + std::to_string(ranks));
  *out = found->second;
  return Status::ok();
}

#ifndef AICF_WITH_CUDA
Status communicator_id(std::string*) { return Status::unsupported("this build has no CUDA"); }

Status make_communicator(int, int, int, CommunicatorPointer*) {
  return Status::unsupported("this build has no CUDA");
}
#endif

}  // namespace aicf
