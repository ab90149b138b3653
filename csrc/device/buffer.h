// Memory of a device with one owner: the only place that allocates, so its counts are the truth on
// allocations.
#pragma once
#include <cstdint>

#include "device/device.h"

namespace aicf {

struct MemoryStats {
  int64_t allocations = 0;  // since the process began
  int64_t live_bytes = 0;   // allocated and not yet released
};

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  ~DeviceBuffer() { reset(); }
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  // Contents are undefined; the address is a multiple of kPlannedAlignment.
  static Status allocate(Device& device, size_t bytes, DeviceBuffer* out);
  // The same with zeros, which are there once the work on the null stream is done.
  static Status allocate_zeros(Device& device, size_t bytes, DeviceBuffer* out);
  void reset() noexcept;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;

  void take(Device& device, void* data, size_t bytes);
};

MemoryStats memory_stats(const Device& device);

}  // namespace aicf
