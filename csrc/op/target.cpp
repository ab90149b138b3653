#include "op/variant.h"

namespace aicf {

namespace {

// Compute capabilities that CUDA compiles for. Which kernels run on one, their rows say.
constexpr int kCapabilities[] = {75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121};

}  // namespace

const std::vector<Target>& Target::all() {
  static const std::vector<Target> targets = [] {
    std::vector<Target> list{Target{}};
    for (const bool cublaslt : {false, true})
      for (int sm : kCapabilities) list.push_back(Target{DeviceType::Cuda, sm, cublaslt});
    return list;
  }();
  return targets;
}

Status Target::parse(const std::string& text, Target* out) {
  std::string known;
  for (const Target& target : all()) {
    if (text == target.str()) {
      *out = target;
      return Status::ok();
    }
    known += (known.empty() ? "" : ", ") + target.str();
  }
  return Status::invalid("there is no target '" + text + "'; there are " + known);
}

std::string Target::str() const {
  if (device == DeviceType::Cpu) return "cpu";
  return "sm_" + std::to_string(sm) + (cublaslt ? "+cublaslt" : "");
}

}  // namespace aicf
