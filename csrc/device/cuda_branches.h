// The streams of branches on a CUDA device.
#pragma once
#include <cuda_runtime.h>

#include <memory>

#include "device/branches.h"

namespace aicf {

// On cuda:`index`; `*capture` is the stream of branch 0 when it is asked for.
Status make_cuda_branches(int index, const cudaStream_t* capture, size_t branches, size_t events,
                          std::unique_ptr<BranchStreams>* out);

}  // namespace aicf
