// Moments on a CUDA stream.
#pragma once
#include <cstddef>
#include <memory>

#include "device/device.h"

namespace aicf {

// For `spans` times on cuda:`index`.
Status make_cuda_marks(int index, size_t spans, std::unique_ptr<Marks>* out);

}  // namespace aicf
