#include "runtime/arena.h"

#include <cstring>

namespace aicf {

Status Arena::create(const std::string& device_name, int64_t nbytes, bool visible,
                     std::shared_ptr<Arena>* out) {
  if (nbytes < 0) return Status::invalid("an arena has 0 or more bytes, got " + std::to_string(nbytes));
  Device* device = nullptr;
  AICF_TRY(get_device(device_name, &device));
  DeviceBuffer buffer;
  AICF_TRY(DeviceBuffer::allocate_zeros(*device, static_cast<size_t>(nbytes), &buffer));
  std::shared_ptr<Arena> arena(new Arena(*device, device_name, std::move(buffer)));
  if (visible && device->type() == DeviceType::Cpu) {
    arena->visible_ = arena->data();
  } else if (visible) {
    void* copy = nullptr;
    AICF_TRY(device->allocate_visible(static_cast<size_t>(nbytes), &copy));
    arena->visible_ = static_cast<char*>(copy);
    std::memset(copy, 0, static_cast<size_t>(nbytes));
  }
  AICF_TRY(device->synchronize(nullptr));  // zero for every stream
  *out = std::move(arena);
  return Status::ok();
}

Arena::~Arena() {
  if (has_copy()) device_.release_visible(visible_);
}

Status Arena::check_range(const std::string& what, int64_t offset, int64_t bytes) const {
  if (offset >= 0 && bytes >= 0 && offset <= nbytes() && bytes <= nbytes() - offset) return Status::ok();
  return Status::invalid(what + " of " + std::to_string(bytes) + " bytes at offset " +
                         std::to_string(offset) + " is outside its arena of " + std::to_string(nbytes()) +
                         " bytes");
}

Status Arena::copy_in(int64_t offset, const void* source, int64_t bytes, void* stream) {
  AICF_TRY(check_range("a write", offset, bytes));
  if (bytes && !source)
    return Status::invalid("a write of " + std::to_string(bytes) + " bytes from a null address");
  return device_.copy(data() + offset, source, static_cast<size_t>(bytes), stream);
}

Status Arena::copy_out(int64_t offset, void* target, int64_t bytes, void* stream) const {
  AICF_TRY(check_range("a read", offset, bytes));
  return device_.copy(target, data() + offset, static_cast<size_t>(bytes), stream);
}

Status Arena::copy_from(const Arena& other, void* stream, int64_t offset, int64_t count) {
  if (other.nbytes() != nbytes())
    return Status::invalid("an arena of " + std::to_string(nbytes()) +
                           " bytes cannot take the contents of one of " + std::to_string(other.nbytes()) +
                           " bytes");
  Device& copier =
      device_.type() == DeviceType::Cuda ? device_ : other.device_;  // the one that can reach both
  if (count < 0) count = nbytes() - offset;
  AICF_TRY(check_range("a copy", offset, count));
  return copier.copy(data() + offset, other.data() + offset, static_cast<size_t>(count), stream);
}

Status Arena::fill(int byte, void* stream) {
  if (byte < 0 || byte > 255) return Status::invalid("a byte is 0 to 255, got " + std::to_string(byte));
  if (has_copy()) {
    AICF_TRY(device_.synchronize(stream));  // what is still queued may write it
    std::memset(visible_, byte, static_cast<size_t>(nbytes()));
  }
  return device_.fill(data(), byte, static_cast<size_t>(nbytes()), stream);
}

}  // namespace aicf
