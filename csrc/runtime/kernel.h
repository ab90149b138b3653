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
};

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

struct KernelVariant {
  const char* name;  // the kernel id, unique in the registry, e.g. "gemm_f32_tiled"
  OpKind kind;
  DeviceType device;
  int min_sm;  // lowest compute capability, e.g. 80; 0 on the CPU
  // Enqueues the work on ctx.stream; null where this build lacks the device. No allocation, no
  // synchronisation.
  Status (*launch)(const OpDesc&, const LaunchContext&);
  // Beyond the schema: dtype, layout and alignment this variant needs; the message is the reason for a
  // refusal.
  Status (*supported)(const OpDesc&);
  size_t (*query_workspace)(const OpDesc&);  // bytes; null means none
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
