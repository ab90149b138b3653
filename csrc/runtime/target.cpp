#include <cstdlib>

#include "runtime/kernel.h"

namespace aicf {

Status Target::parse(const std::string& text, Target* out) {
  if (text == "cpu") {
    *out = Target{};
    return Status::ok();
  }
  // "sm_" and two or three digits.
  const bool digits =
      text.size() > 4 && text.size() < 7 && text.find_first_not_of("0123456789", 3) == std::string::npos;
  if (text.compare(0, 3, "sm_") != 0 || !digits || text[3] == '0')
    return Status::invalid("target '" + text +
                           "' is neither cpu nor a compute capability such as sm_80 or sm_90");
  out->device = DeviceType::Cuda;
  out->sm = std::atoi(text.c_str() + 3);
  return Status::ok();
}

std::string Target::str() const { return device == DeviceType::Cpu ? "cpu" : "sm_" + std::to_string(sm); }

}  // namespace aicf
