#include "device/device.h"

namespace aicf {
namespace {

// "cuda" is device 0, "cuda:N" device N; false for any other text.
bool parse_cuda(const std::string& name, int* index) {
  *index = 0;
  if (name == "cuda") return true;
  const std::string digits = name.compare(0, 5, "cuda:") == 0 ? name.substr(5) : "";
  if (digits.empty() || digits.size() > 3 || digits.find_first_not_of("0123456789") != std::string::npos)
    return false;
  *index = std::stoi(digits);
  return true;
}

}  // namespace

Status get_device(const std::string& name, Device** out) {
  if (name == "cpu") return get_cpu_device(out);
  int index = 0;
  if (!parse_cuda(name, &index))
    return Status::invalid("no device is called '" + name + "'; expected cpu, cuda or cuda:N");
#ifdef AICF_WITH_CUDA
  const int count = cuda_device_count();
  if (index < count) return get_cuda_device(index, out);
  return Status::device(
      "there is no device cuda:" + std::to_string(index) + "; " +
      (count ? "this machine has " + std::to_string(count) : "no CUDA driver with a device was found"));
#else
  return Status::device(
      "this build has no CUDA; install nvcc and build again with AICF_CUDA=ON, or use device \"cpu\"");
#endif
}

#ifndef AICF_WITH_CUDA
int cuda_device_count() { return 0; }
#endif

}  // namespace aicf
