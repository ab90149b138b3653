// How an operation may be run (KernelVariant), and a launch that is ready to run (LaunchState).
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "op/schema.h"

namespace aicf {

struct LaunchContext {
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  void* stream = nullptr;  // cudaStream_t on CUDA, unused on the CPU
  // The status of the step, on the device: where its code is not 0 the launch does nothing. Null for a launch
  // that always runs. A CPU kernel need not look: the device skips it.
  const int64_t* unless = nullptr;
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
  // `choice`: what the kernel has decided, or nothing.
  LaunchState(std::string id, const std::string& choice)
      : id_(std::move(id)), name_(choice.empty() ? id_ : id_ + "[" + choice + "]") {}
  virtual ~LaunchState() = default;
  // Enqueues the work on ctx.stream. No allocation on the device, no synchronisation.
  virtual Status launch(const LaunchContext& ctx) const = 0;
  // The kernel that runs: "gemm_f16_tc".
  const std::string& id() const { return id_; }
  // With what it has chosen in brackets: "gemm_f16_tc[64x64]".
  const std::string& name() const { return name_; }

 private:
  std::string id_, name_;
};

struct KernelVariant;
using LaunchPointer = std::shared_ptr<const LaunchState>;
// Makes a launch of `self` ready, from an operation that it supports, with memory.
using Prepare = Status (*)(const KernelVariant& self, const OpDesc&, LaunchPointer*);

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
  bool skippable = false;            // whether the launch looks at ctx.unless; needed on CUDA only
  bool cublaslt = false;             // whether it is of cuBLASLt, which a target has or has not
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

// A Prepare from two functions: `make` reads the operation once, to a State; `run` launches it.
template <auto make, auto run>
Status prepare_with(const KernelVariant& self, const OpDesc& op, LaunchPointer* out) {
  using State = std::decay_t<decltype(make(op))>;
  class Launch : public LaunchState {
   public:
    Launch(const char* name, State state)
        : LaunchState(name, choice_of(state, 0)), state_(std::move(state)) {}
    Status launch(const LaunchContext& ctx) const override { return run(state_, ctx); }

   private:
    const State state_;
  };
  *out = std::make_shared<Launch>(self.name, make(op));
  return Status::ok();
}

// The operation itself as the state, for a kernel that reads it at each launch.
inline OpDesc same_op(const OpDesc& op) { return op; }
template <auto run>
constexpr Prepare prepare_op = prepare_with<same_op, run>;

// "cpu", "sm_90", or "sm_90+cublaslt" where products may be those of that library.
struct Target {
  DeviceType device = DeviceType::Cpu;
  int sm = 0;
  bool cublaslt = false;
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
