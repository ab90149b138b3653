// The lane of an upload on a CUDA device.
#pragma once
#include <memory>

#include "device/upload.h"

namespace aicf {

// Host memory of so many bytes at most is copied by `device` as an argument of a kernel.
std::unique_ptr<UploadLane> make_cuda_lane(Device& device, int index, size_t direct_bytes);

}  // namespace aicf
