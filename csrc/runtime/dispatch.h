// One launch from a description: checks it, picks its kernel, runs it or records it into the open graph.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "op/variant.h"

namespace aicf {

// Runs `op` with the kernel `kernel_id`, or with the first that supports it where the id is empty; `ran` is
// the kernel. `owners` keep the operands' memory alive if the launch is recorded.
Status dispatch(const OpDesc& op, const std::string& kernel_id, void* stream,
                const std::vector<std::shared_ptr<void>>& owners, const KernelVariant** ran);

}  // namespace aicf
