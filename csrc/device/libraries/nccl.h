// NCCL, found at run time: nothing of it is needed to build. What collectives need of its C interface,
// declared here with the numbers of nccl.h.
#pragma once
#include <cstddef>

#include "op/status.h"

namespace aicf::nccl {

struct UniqueId {
  char bytes[128];
};
using Communicator = void*;
enum Result { kSuccess = 0, kInProgress = 7 };
constexpr int kBytes = 1;  // ncclUint8

struct Library {
  int (*version)(int*);
  const char* (*error)(int);
  int (*unique_id)(UniqueId*);
  int (*init_rank)(Communicator*, int ranks, UniqueId, int rank);
  int (*async_error)(Communicator, int*);
  int (*abort)(Communicator);
  int (*all_gather)(const void* from, void* to, size_t count, int type, Communicator, void* stream);
};

// Found as open.h says; null without one. The same for as long as the process lives.
const Library* library();
constexpr const char* kMissing =
    "needs NCCL: libnccl.so.2, which torch for CUDA brings, and no AICF_NCCL=0 in the environment";

Status check(const Library& lib, int status, const char* what);

}  // namespace aicf::nccl
