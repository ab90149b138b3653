// How an operation may be run (KernelVariant), and a launch that is ready to run (LaunchState).
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "op/libraries.h"
#include "op/schema.h"

namespace aicf {

struct LaunchContext {
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  void* stream = nullptr;  // cudaStream_t on CUDA, unused on the CPU
  // The status of the step, on the device: where its code is not 0 the launch does nothing. Null for a launch
  // that always runs. A CPU kernel need not look: the device skips it.
  const int64_t* predicate = nullptr;
  // CUDA, in a capture: the launch may have a programmatic edge, since its stream goes on where it was.
  bool programmatic = false;
  // The step has collectives, which may hold a part of the device while they wait for other ranks.
  bool of_ranks = false;
  // Where the host looks for the status that this launch computes; null on the CPU, and for other launches.
  int64_t* visible_status = nullptr;
};

// What a check finds: the code of the check that failed (0: none did), the position of the first element that
// made it fail, and what stands there.
constexpr int kStatusNumbers = 3;

// A launch made ready: all that stays the same between two launches is decided. It holds the addresses of its
// operands, which must live as long.
class LaunchState {
 public:
  // `choice`: what the kernel has decided, or nothing; `asked`, whether the plan has decided it.
  LaunchState(const std::string& id, const std::string& choice, bool asked = false)
      : name_(choice.empty() ? id : id + "[" + choice + "]"), id_(asked ? name_ : id) {}
  virtual ~LaunchState() = default;
  // Enqueues the work on ctx.stream. No allocation on the device, no synchronisation.
  virtual Status launch(const LaunchContext& ctx) const = 0;
  // Whether it waits for the same launch of other processes.
  virtual bool is_collective() const { return false; }
  // The functions that a launch enqueues on a device, in order, by their names there; nothing where it does
  // not know them.
  virtual std::vector<std::string> functions(const LaunchContext&) const { return {}; }
  // The kernel that runs, as a plan names it: "gemm_f16_tc", or as name() where the plan says that much.
  const std::string& id() const { return id_; }
  // With what has been chosen in brackets: "gemm_f16_tc[64x64]".
  const std::string& name() const { return name_; }

 private:
  std::string name_, id_;
};

struct KernelVariant;
using LaunchPointer = std::shared_ptr<const LaunchState>;
// Makes a launch of `self` ready, from an operation that it supports, with memory. `asked`: the choice that
// the plan has made in the kernel's place, or nothing.
using Prepare = Status (*)(const KernelVariant& self, const OpDesc&, const std::string& asked,
                           LaunchPointer*);
// All that a kernel can choose for an operation on the current device, what it chooses by itself first.
using Choices = Status (*)(const OpDesc&, std::vector<std::string>*);

struct KernelVariant {
  const char* name;  // the kernel id, unique in the registry, e.g. "gemm_f32_tiled"
  const char* op;    // the name of its schema
  DeviceType device;
  int min_sm;       // lowest compute capability, e.g. 80; 0 on the CPU
  Prepare prepare;  // null where this build lacks the device
  // Beyond the schema: dtype, layout and alignment this variant needs; the message is the reason for a
  // refusal.
  Status (*supported)(const OpDesc&);
  size_t (*query_workspace)(const OpDesc&) = nullptr;  // bytes; null means none
  Choices choices = nullptr;                           // null: it has no choice
  bool skippable = false;           // whether the launch looks at ctx.predicate; needed on CUDA only
  Library library = Library::None;  // whose it is, which a target has or has not
  // Why a later row is taken where no plan names this one, though it supports the operation; null: none is.
  Status (*preferred)(const OpDesc&) = nullptr;
  int max_sm = 0;                    // highest compute capability; 0: any
  const OpSchema* schema = nullptr;  // of `op`; set by the registry
};

// What a state has chosen, if it has a function for that.
template <class State>
auto choice_of(const State& state, int) -> decltype(state.choice()) {
  return state.choice();
}
template <class State>
std::string choice_of(const State&, long) {
  return "";
}

// A launch that `run` makes of a State.
template <class State, auto run>
class StateLaunch : public LaunchState {
 public:
  StateLaunch(const char* name, State state, bool asked)
      : LaunchState(name, choice_of(state, 0), asked), state_(std::move(state)) {}
  Status launch(const LaunchContext& ctx) const override { return run(state_, ctx); }

 private:
  const State state_;
};

// A Prepare from two functions: `make` reads the operation once, to a State; `run` launches it.
template <auto make, auto run>
Status prepare_with(const KernelVariant& self, const OpDesc& op, const std::string& asked,
                    LaunchPointer* out) {
  using State = std::decay_t<decltype(make(op))>;
  *out = std::make_shared<StateLaunch<State, run>>(self.name, make(op), !asked.empty());
  return Status::ok();
}

// The same of a kernel that has a choice: `make(op, choice)` for each of `choices`.
template <auto choices, auto make, auto run>
Status prepare_chosen(const KernelVariant& self, const OpDesc& op, const std::string& asked,
                      LaunchPointer* out) {
  std::vector<std::string> known;
  AICF_TRY(choices(op, &known));
  std::string list;
  for (const std::string& choice : known) {
    if (asked.empty() || choice == asked) {
      using State = std::decay_t<decltype(make(op, choice))>;
      *out = std::make_shared<StateLaunch<State, run>>(self.name, make(op, choice), !asked.empty());
      return Status::ok();
    }
    list += (list.empty() ? "[" : ", [") + choice + "]";
  }
  return Status::unsupported(std::string("kernel '") + self.name + "' cannot choose [" + asked +
                             "] for these operands; it can choose " + list);
}

// The operation itself as the state, for a kernel that reads it at each launch.
inline OpDesc same_op(const OpDesc& op) { return op; }
template <auto run>
constexpr Prepare prepare_op = prepare_with<same_op, run>;

// "cpu", "sm_90", or "sm_90+cublaslt+cudnn" where kernels may be those of these libraries.
struct Target {
  DeviceType device = DeviceType::Cpu;
  int sm = 0;
  Libraries libraries = {};
  static const std::vector<Target>& all();  // that plans can be made for
  static Status parse(const std::string& text, Target* out);
  std::string str() const;
};

}  // namespace aicf

// `prepare` where this build has CUDA, else null: names and predicates stay, only the launch is missing.
#ifdef AICF_WITH_CUDA
#define AICF_CUDA(prepare) prepare
#else
#define AICF_CUDA(prepare) nullptr
#endif
