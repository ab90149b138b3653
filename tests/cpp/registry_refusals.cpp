// The registry's refusals at registration, selection and preparation, which no correct build can show from
// Python. Prints one line each.
#include <cstdio>
#include <stdexcept>

#include "op/registry.h"

namespace aicf {

namespace {

Status accept(const OpDesc&) { return Status::ok(); }
Status refuse(const OpDesc&) { return Status::unsupported("needs a blue tensor"); }
Status launch(const OpDesc&, const LaunchContext&) { return Status::ok(); }

OpSchema schema(int number, const char* name) {
  return {number, "Copy", name, "", {{"x"}}, {{"y"}}, {}, {}, "", &accept};
}

KernelVariant cpu(const char* name, const char* op, Status (*supported)(const OpDesc&), Prepare prepare) {
  return {name, op, DeviceType::Cpu, 0, prepare, supported};
}

// A kernel that has another one do its work.
Status prepare_other(const KernelVariant&, const OpDesc& op, const std::string& asked, LaunchPointer* out) {
  const KernelVariant& other = *KernelRegistry::get().find("copy_first");
  return other.prepare(other, op, asked, out);
}

struct Tile {
  std::string size = "64x64";
  std::string choice() const { return size; }
};
Tile choose(const OpDesc&) { return {}; }
Status sizes(const OpDesc&, std::vector<std::string>* out) {
  *out = {"64x64", "128x128"};
  return Status::ok();
}
Tile sized(const OpDesc&, const std::string& choice) { return {choice}; }
Status launch_tile(const Tile&, const LaunchContext&) { return Status::ok(); }

}  // namespace

static const Family family([](KernelRegistry& registry) { registry.add(schema(25, "copy")); });

template <class Row>
void print_refusal(KernelRegistry& registry, const Row& row) {
  try {
    registry.add(row);
    std::puts("accepted");
  } catch (const std::logic_error& error) {
    std::puts(error.what());
  }
}

OpDesc copy() {
  OpDesc op;
  op.schema = KernelRegistry::get().schema("copy");
  return op;
}

void print_selection(const KernelRegistry& registry, const Target& target) {
  const KernelVariant* chosen = nullptr;
  const Status status = registry.select(copy(), target, "", &chosen);
  std::puts(status.is_ok() ? chosen->name : status.message().c_str());
}

void print_preparation(const std::string& name) {
  LaunchPointer state;
  const Status status =
      prepare_kernel(*KernelRegistry::get().find(KernelName(name).id), copy(), name, &state);
  std::puts(status.is_ok() ? state->name().c_str() : status.message().c_str());
}

}  // namespace aicf

int main() {
  using namespace aicf;
  constexpr Prepare ready = prepare_op<launch>;
  KernelRegistry& registry = KernelRegistry::get();
  const Target host;
  print_selection(registry, host);
  print_refusal(registry, schema(25, "again"));
  print_refusal(registry, schema(26, "copy"));
  OpSchema uncounted = schema(27, "split");
  uncounted.outputs = {many("parts")};
  print_refusal(registry, uncounted);
  OpSchema open = schema(28, "join");
  open.inputs = {any("x")};
  print_refusal(registry, open);
  print_refusal(registry, cpu("relu_cpu", "relu", &accept, ready));
  registry.add(cpu("copy_blue", "copy", &refuse, ready));
  registry.add(KernelVariant{"copy_new", "copy", DeviceType::Cuda, 90, nullptr, &accept});
  print_refusal(registry, cpu("copy_blue", "copy", &accept, ready));
  print_selection(registry, host);
  print_selection(registry, Target{DeviceType::Cuda, 80});
  registry.add(cpu("copy_first", "copy", &accept, ready));
  registry.add(cpu("copy_other", "copy", &accept, prepare_other));
  registry.add(cpu("copy_tiled", "copy", &accept, prepare_with<choose, launch_tile>));
  print_selection(registry, host);
  registry.add(cpu("copy_sized", "copy", &accept, prepare_chosen<sizes, sized, launch_tile>));
  for (const char* name :
       {"copy_first", "copy_tiled", "copy_other", "copy_new", "copy_first[64x64]", "copy_tiled[64x64]",
        "copy_tiled[32x32]", "copy_sized", "copy_sized[128x128]", "copy_sized[7]"})
    print_preparation(name);
}
