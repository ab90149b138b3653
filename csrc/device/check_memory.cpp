#include "device/check_memory.h"

#include <cstdint>
#include <limits>

#include "op/validate.h"

namespace aicf {
namespace {

uintptr_t address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

Status check_address(const TensorDesc& t, Device& device) {
  const size_t bytes = t.span_bytes();
  if (!t.data) return bytes ? Status::invalid("null data for " + t.str()) : Status::ok();
  if (address(t.data) % dtype_size(t.dtype) != 0)
    return Status::invalid("misaligned: the address is not a multiple of " +
                           std::to_string(dtype_size(t.dtype)) + ", the size of " + dtype_name(t.dtype) +
                           " in bytes");
  if (!bytes) return Status::ok();
  if (address(t.data) > std::numeric_limits<uintptr_t>::max() - bytes)
    return Status::invalid("the address plus " + std::to_string(bytes) +
                           " bytes is beyond the end of memory");
  AICF_TRY(device.check_pointer(t.data));
  return device.check_pointer(t.ptr<char>() + bytes - 1);
}

}  // namespace

Status check_memory(const OpDesc& op, Device& device) {
  for (size_t i = 0; i < operand_count(op); ++i) {
    const Status status = check_address(operand(op, i), device);
    if (!status.is_ok()) return status.at(operand_name(op, i));
  }
  return Status::ok();
}

}  // namespace aicf
