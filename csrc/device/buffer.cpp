#include "device/buffer.h"

#include <map>
#include <mutex>
#include <utility>

namespace aicf {
namespace {

std::mutex stats_mutex;

std::map<const Device*, MemoryStats>& all_stats() {
  static auto* stats =
      new std::map<const Device*, MemoryStats>;  // outlives buffers that are released at exit
  return *stats;
}

void account(const Device* device, int64_t allocations, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(stats_mutex);
  MemoryStats& stats = all_stats()[device];
  stats.allocations += allocations;
  stats.live_bytes += bytes;
}

}  // namespace

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this == &other) return *this;
  reset();
  device_ = std::exchange(other.device_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

Status DeviceBuffer::allocate(Device& device, size_t bytes, DeviceBuffer* out) {
  void* data = nullptr;
  AICF_TRY(device.allocate(bytes, &data));
  out->take(device, data, bytes);
  return Status::ok();
}

Status DeviceBuffer::allocate_zeros(Device& device, size_t bytes, DeviceBuffer* out) {
  void* data = nullptr;
  AICF_TRY(device.allocate_zeros(bytes, &data));
  out->take(device, data, bytes);
  return Status::ok();
}

void DeviceBuffer::take(Device& device, void* data, size_t bytes) {
  account(&device, 1, static_cast<int64_t>(bytes));
  reset();
  device_ = &device;
  data_ = data;
  bytes_ = bytes;
}

void DeviceBuffer::reset() noexcept {
  if (!device_) return;
  device_->release(data_);
  account(device_, 0, -static_cast<int64_t>(bytes_));
  device_ = nullptr;
  data_ = nullptr;
  bytes_ = 0;
}

MemoryStats memory_stats(const Device& device) {
  const std::lock_guard<std::mutex> lock(stats_mutex);
  return all_stats()[&device];
}

}  // namespace aicf
