// From the text of a plan to launches: addresses, kernels and attributes resolved once, everything checked
// before the first run.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "runtime/arena.h"
#include "runtime/code.h"

namespace aicf {

using ArenaMap = std::map<std::string, std::shared_ptr<Arena>>;  // by role

struct SlotSpec {
  std::string arena;
  int64_t offset = 0;  // bytes, of the first element
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  std::optional<std::vector<int64_t>> strides;  // elements; contiguous without
};

struct WorkspaceSpec {
  std::string arena;
  int64_t offset = 0;  // bytes, a multiple of kPlannedAlignment
  int64_t nbytes = 0;
};

struct LaunchSpec {
  std::string symbol;  // in the plan: "k3"
  std::string origin;  // where it comes from: "model.py:12, encoder.3.attn: Linear"
  const OpSchema* schema = nullptr;
  std::string kernel_id;
  std::vector<SlotSpec> inputs, outputs;
  std::vector<int64_t> input_counts, output_counts;  // empty where each operand and result is one
  Attrs attrs;
  CodePointer code;  // of a generated kernel; null for those of the registry
  std::optional<WorkspaceSpec> workspace;
  std::optional<SlotSpec> predicate;  // the status that skips the launch
  std::vector<size_t> after;          // positions of the launches that must be complete before this one
  int64_t branch = 0;                 // of a captured graph
  bool first_step_only = false;       // in the first step of a replay only: the others keep its results

  // "launch @k3 (relu, kernel relu_cpu; model.py:12, encoder.3.act: ReLU)"; the position where there is no
  // symbol
  std::string str(size_t position) const;
};

// A launch with everything resolved.
struct PreparedLaunch {
  LaunchPointer launch;
  LaunchContext context;  // without a stream
  Branched order;
  bool first_step_only = false;
  std::string place;  // LaunchSpec::str(), for errors
};

// The arena called `name`; the refusal says which there are.
Status find_arena(const std::string& name, const ArenaMap& arenas, const Arena** out);
// The status at `slot`: kStatusNumbers numbers of i64 in an arena that the host can look at.
Status place_status(const SlotSpec& slot, const ArenaMap& arenas, int64_t** device, int64_t** visible);

// Refuses unknown arenas, slots outside them, misaligned and overlapping operands, whatever the schema
// refuses, a kernel that does not support the operands, a generated one without its code, a workspace that is
// too small, a status that the kernel does not look at, and a branch that the device does not have.
Status prepare(const LaunchSpec& spec, size_t position, Device& device, const ArenaMap& arenas,
               PreparedLaunch* out);

}  // namespace aicf
