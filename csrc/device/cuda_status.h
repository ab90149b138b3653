// CUDA errors as Status: the call, CUDA's own words, where it happened, and what to do when the process
// cannot go on.
#pragma once
#include <cuda_runtime.h>

#include "op/status.h"

namespace aicf {

// Clears the thread's last error, so that a failure that was reported is not reported again by the next
// launch.
Status cuda_status(cudaError_t error, const char* call, const char* file, int line);

}  // namespace aicf

#define AICF_CUDA_TRY(call)                                                                             \
  do {                                                                                                  \
    const cudaError_t aicf_error_ = (call);                                                             \
    if (aicf_error_ != cudaSuccess) return ::aicf::cuda_status(aicf_error_, #call, __FILE__, __LINE__); \
  } while (0)
