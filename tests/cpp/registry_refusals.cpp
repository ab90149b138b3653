// The registry's refusals at registration and selection, which no correct build can show from Python. Prints
// one line each.
#include <cstdio>
#include <stdexcept>

#include "runtime/registry.h"

namespace aicf {

namespace {
Status accept(const OpDesc&) { return Status::ok(); }
Status refuse(const OpDesc&) { return Status::unsupported("needs a blue tensor"); }
Status launch(const OpDesc&, const LaunchContext&) { return Status::ok(); }
const OpSchema kSchema = {OpKind::Copy, 0, 0, &accept, nullptr};
}  // namespace

void register_all(KernelRegistry& registry) { registry.add(kSchema); }

template <class Row>
void print_refusal(KernelRegistry& registry, const Row& row) {
  try {
    registry.add(row);
    std::puts("accepted");
  } catch (const std::logic_error& error) {
    std::puts(error.what());
  }
}

void print_selection(const KernelRegistry& registry, const Target& target) {
  OpDesc op;
  op.kind = OpKind::Copy;
  const KernelVariant* chosen = nullptr;
  const Status status = registry.select(op, target, "", &chosen);
  std::puts(status.is_ok() ? chosen->name : status.message().c_str());
}

}  // namespace aicf

int main() {
  using namespace aicf;
  KernelRegistry& registry = KernelRegistry::get();
  const Target cpu;
  print_selection(registry, cpu);
  print_refusal(registry, kSchema);
  print_refusal(registry, OpSchema{static_cast<OpKind>(999), 0, 0, &accept, nullptr});
  print_refusal(registry, KernelVariant{"relu_cpu", OpKind::EltwiseRelu, DeviceType::Cpu, 0, &launch, &accept,
                                        nullptr});
  registry.add(KernelVariant{"copy_blue", OpKind::Copy, DeviceType::Cpu, 0, &launch, &refuse, nullptr});
  registry.add(KernelVariant{"copy_new", OpKind::Copy, DeviceType::Cuda, 90, nullptr, &accept, nullptr});
  print_refusal(registry,
                KernelVariant{"copy_blue", OpKind::Copy, DeviceType::Cpu, 0, &launch, &accept, nullptr});
  print_selection(registry, cpu);
  print_selection(registry, Target{DeviceType::Cuda, 80});
  registry.add(KernelVariant{"copy_first", OpKind::Copy, DeviceType::Cpu, 0, &launch, &accept, nullptr});
  registry.add(KernelVariant{"copy_second", OpKind::Copy, DeviceType::Cpu, 0, &launch, &accept, nullptr});
  print_selection(registry, cpu);
}
