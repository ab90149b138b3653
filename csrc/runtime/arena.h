// One block of device memory at a fixed address: a role's memory of a plan. Shared by the executors that use
// it.
#pragma once
#include <memory>
#include <string>

#include "device/buffer.h"

namespace aicf {

class Arena {
 public:
  // Zero-filled. The device is one of get_device(). A `visible` arena has a copy of itself that kernels write
  // for the host to look at without waiting; on the CPU that is the arena itself.
  static Status create(const std::string& device, int64_t nbytes, bool visible, std::shared_ptr<Arena>* out);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Device& device() const { return device_; }
  const std::string& device_name() const { return device_name_; }
  char* data() const { return static_cast<char*>(buffer_.data()); }
  int64_t nbytes() const { return static_cast<int64_t>(buffer_.bytes()); }
  char* visible() const { return visible_; }  // what the host may look at; null for other arenas

  // Offsets and sizes in bytes, refused outside the arena. Ordered on `stream`; host memory is free for reuse
  // on return.
  Status copy_in(int64_t offset, const void* source, int64_t nbytes, void* stream);
  Status copy_out(int64_t offset, void* target, int64_t nbytes, void* stream) const;
  // The same range of `other`, which has the same size; `nbytes` < 0: all of it.
  Status copy_from(const Arena& other, void* stream, int64_t offset = 0, int64_t nbytes = -1);
  Status fill(int byte, void* stream);  // of a visible arena: both copies, after waiting for `stream`

  // Whether [offset, offset + nbytes) lies inside; `what` names the range in the message.
  Status check_range(const std::string& what, int64_t offset, int64_t nbytes) const;

 private:
  Arena(Device& device, std::string name, DeviceBuffer buffer)
      : device_(device), device_name_(std::move(name)), buffer_(std::move(buffer)) {}
  bool has_copy() const { return visible_ && visible_ != data(); }
  Device& device_;
  std::string device_name_;
  DeviceBuffer buffer_;
  char* visible_ = nullptr;
};

}  // namespace aicf
