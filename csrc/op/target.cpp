#include "op/variant.h"

namespace aicf {

namespace {

// Compute capabilities that CUDA compiles for. Which kernels run on one, their rows say.
constexpr int kCapabilities[] = {75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121};

}  // namespace

const std::vector<Target>& Target::all() {
  static const std::vector<Target> targets = [] {
    std::vector<Target> list{Target{}};
    std::vector<Libraries> sets{Libraries{}};
    for (const LibraryRow& row : kLibraries)
      for (size_t i = sets.size(); i-- > 0;) sets.push_back(sets[i].with(row.library));
    for (const Libraries& libraries : sets)
      for (int sm : kCapabilities) list.push_back(Target{DeviceType::Cuda, sm, libraries});
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
    if (target.str().find('+') == std::string::npos) known += (known.empty() ? "" : ", ") + target.str();
  }
  return Status::invalid("there is no target '" + text + "'; there are " + known +
                         ", those of a GPU with any of +cublaslt, +cudnn in this order");
}

std::string Target::str() const {
  if (device == DeviceType::Cpu) return "cpu";
  std::string text = "sm_" + std::to_string(sm);
  for (const LibraryRow& row : kLibraries)
    if (libraries.has(row.library)) text += std::string("+") + row.name;
  return text;
}

}  // namespace aicf
