// What must hold of the memory of operands before a launch.
#pragma once
#include "device/device.h"

namespace aicf {

// Every operand on `device`, not null where it has elements, a multiple of its element size, and readable
// there.
Status check_memory(const OpDesc& op, Device& device);

}  // namespace aicf
