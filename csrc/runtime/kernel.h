// The three things an operation is made of: what it accepts (OpSchema), how it may be run (KernelVariant),
// one use of it (OpDesc).
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "runtime/attr_pack.h"
#include "runtime/op_kind.h"
#include "runtime/status.h"
#include "runtime/tensor_desc.h"

namespace aicf {

// A description of one launch, the same for selection, checking and running. Outputs are destinations.
struct OpDesc {
  OpKind kind = OpKind::EltwiseAdd;
  std::vector<TensorDesc> inputs;
  std::vector<TensorDesc> outputs;
  AttrPack attrs;
};

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

// What an operation accepts, on any device. One per kind, beside its kernels.
struct OpSchema {
  OpKind kind;
  uint32_t attrs;     // attribute bits that are known
  uint32_t required;  // attribute bits that must be present
  // Arity, shapes and dtypes; the message says expected and got. Shape rules live here and nowhere else in
  // C++.
  Status (*check)(const OpDesc&);
  // Whether output `out` may be the very same memory as input `in` (never a part of it).
  bool (*may_alias)(const OpDesc&, int out, int in);
};

using KernelLauncher = Status (*)(const OpDesc&, const LaunchContext&);

struct KernelVariant {
  const char* name;  // the kernel id, unique in the registry, e.g. "gemm_f32_tiled"
  OpKind kind;
  DeviceType device;
  int min_sm;  // lowest compute capability, e.g. 80; 0 on the CPU
  // Enqueues the work on ctx.stream; null where this build lacks the device. No allocation, no
  // synchronisation.
  KernelLauncher launch;
  // Beyond the schema: dtype, layout and alignment this variant needs; the message is the reason for a
  // refusal.
  Status (*supported)(const OpDesc&);
  size_t (*query_workspace)(const OpDesc&);  // bytes; null means none
  bool skippable = false;                    // whether the launch looks at ctx.unless; needed on CUDA only
};

// "cpu" or "sm_90".
struct Target {
  DeviceType device = DeviceType::Cpu;
  int sm = 0;
  static const std::vector<Target>& all();  // that plans can be made for
  static Status parse(const std::string& text, Target* out);
  std::string str() const;
};

}  // namespace aicf

// The launcher where this build has CUDA, else null: names and predicates stay, only launch is missing.
#ifdef AICF_WITH_CUDA
#define AICF_CUDA_LAUNCH(fn) fn
#else
#define AICF_CUDA_LAUNCH(fn) nullptr
#endif
