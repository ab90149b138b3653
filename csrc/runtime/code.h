// The code of a generated kernel: loaded once, and made ready for each launch that names its id.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "op/variant.h"

namespace aicf {

// A part of a launch that starts when the one before is complete.
struct Phase {
  std::string function;
  int64_t count;  // CPU: items, divided into ranges that may run side by side; CUDA: blocks
  int64_t grain;  // CPU: the least number of items that are worth a thread
  int threads;    // CUDA: of a block
  int shared;     // CUDA: bytes of dynamic shared memory of a block
};

// Pairs (result, operand), each counted from 0, that may be the very same memory.
using InPlacePairs = std::vector<std::pair<size_t, size_t>>;

// What does not depend on the device: how the compiler describes the code.
struct CodeSpec {
  std::string id;  // of the kernel: "gen_map_0123456789ab"
  std::vector<Phase> phases;
  InPlacePairs in_place;
  size_t workspace = 0;    // bytes, aligned to kPlannedAlignment
  bool one_table = false;  // CUDA: the addresses are one argument, an array of them, and not one each
  bool waits =
      false;  // CUDA: whether every function begins with dependency_wait(), device/cuda_dependent.cuh
  // CUDA: one function that does what all phases do, if no block waits for one that has not begun: a
  // cooperative launch, for a device that holds all its blocks at once. It takes one address more: two
  // numbers of 32 bits for each block, zeros, which it leaves as zeros or counts up.
  std::optional<Phase> together;
};

class KernelCode {
 public:
  explicit KernelCode(CodeSpec spec) : spec_(std::move(spec)) {}
  virtual ~KernelCode() = default;
  KernelCode(const KernelCode&) = delete;
  KernelCode& operator=(const KernelCode&) = delete;

  virtual DeviceType device() const = 0;
  virtual int sm() const { return 0; }  // compute capability that it was compiled for; 0 on the CPU
  // A launch on these addresses: of the operands, then of the results. The workspace comes with each launch.
  // The state names itself by id(), keeps the code alive, and heeds ctx.predicate where its device does not.
  virtual Status prepare(const std::vector<void*>& addresses, LaunchPointer* out) const = 0;

  const std::string& id() const { return spec_.id; }
  const std::vector<Phase>& phases() const { return spec_.phases; }
  size_t workspace() const { return spec_.workspace; }
  bool one_table() const { return spec_.one_table; }
  bool waits() const { return spec_.waits; }
  const std::optional<Phase>& together() const { return spec_.together; }
  bool in_place(size_t out, size_t in) const;

 private:
  const CodeSpec spec_;
};
using CodePointer = std::shared_ptr<KernelCode>;

// From a relocatable object of this machine (runtime/elf.h). Each phase is a function
//   void f(void* const* addresses, int64_t begin, int64_t end)
// of the addresses of operands, results and workspace, and last of a table: pointers to the functions that
// are named by `called` (runtime/called_functions.h), in this order. Refuses what cannot be loaded or found,
// by name.
Status load_cpu_code(CodeSpec spec, const std::string& object, const std::vector<std::string>& called,
                     CodePointer* out);

// From an image that the driver loads: a cubin, or PTX. Refused where the build has no CUDA.
Status load_cuda_code(CodeSpec spec, int sm, const std::string& image, CodePointer* out);

// Images of generated kernels that the driver holds for this process: each goes with its last code.
size_t loaded_cuda_images();

// What every loader asks first: an id, phases with a function and sizes that make sense.
Status check_code(const CodeSpec& spec);

}  // namespace aicf
