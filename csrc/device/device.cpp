#include "device/device.h"

namespace aicf {

Status parse_device(const std::string& name, DeviceType* type, int* index) {
  *type = name == "cpu" ? DeviceType::Cpu : DeviceType::Cuda;
  *index = 0;
  if (name == "cpu" || name == "cuda") return Status::ok();
  const std::string digits = name.compare(0, 5, "cuda:") == 0 ? name.substr(5) : "";
  if (digits.empty() || digits.size() > 3 || digits.find_first_not_of("0123456789") != std::string::npos)
    return Status::invalid("no device is called '" + name + "'; expected cpu, cuda or cuda:N");
  *index = std::stoi(digits);
  return Status::ok();
}

Status get_device(const std::string& name, Device** out) {
  DeviceType type = DeviceType::Cpu;
  int index = 0;
  AICF_TRY(parse_device(name, &type, &index));
  if (type == DeviceType::Cpu) return get_cpu_device(out);
#ifdef AICF_WITH_CUDA
  return get_cuda_device(index, out);
#else
  return Status::device("this build has no CUDA; build it where nvcc is found, or use the device \"cpu\"");
#endif
}

#ifndef AICF_WITH_CUDA
int cuda_device_count() { return 0; }
#endif

}  // namespace aicf
