// Rows of the tables of kernels: name, device and lowest compute capability, launcher, predicate, workspace.
#pragma once
#include "kernels/common/schema_checks.h"
#include "runtime/kernel.h"

namespace aicf {

// Lowest compute capability of CUDA kernels, by what they use.
constexpr int kSmAny = 80;       // the oldest that the build has code for (CMAKE_CUDA_ARCHITECTURES)
constexpr int kSmBFloat16 = 80;  // bf16 arithmetic

using LaunchFunction = Status (*)(const OpDesc&, const LaunchContext&);
using SupportFunction = Status (*)(const OpDesc&);
using WorkspaceFunction = size_t (*)(const OpDesc&);

constexpr KernelVariant cuda_row(const char* name, OpKind kind, int min_sm, LaunchFunction launch,
                                 SupportFunction supported, WorkspaceFunction workspace = nullptr) {
  return {name, kind, DeviceType::Cuda, min_sm, launch, supported, workspace};
}

constexpr KernelVariant cpu_row(const char* name, OpKind kind, LaunchFunction launch,
                                SupportFunction supported = needs_dense,
                                WorkspaceFunction workspace = nullptr) {
  return {name, kind, DeviceType::Cpu, 0, launch, supported, workspace};
}

// Of a kernel that does nothing where *ctx.unless is not 0.
constexpr KernelVariant skippable_cuda_row(const char* name, OpKind kind, int min_sm, LaunchFunction launch,
                                           SupportFunction supported, WorkspaceFunction workspace = nullptr) {
  KernelVariant variant = cuda_row(name, kind, min_sm, launch, supported, workspace);
  variant.skippable = true;
  return variant;
}

}  // namespace aicf

// A row for each float type, NAME_f16 and so on, of one launcher that serves all of them. `row` makes it.
#define AICF_CUDA_FLOAT_ROWS_BY(row, name, kind, launch, workspace)                                    \
  row(name "_f16", kind, kSmAny, AICF_CUDA_LAUNCH(launch), supports_dtype<DType::F16>, workspace),     \
      row(name "_bf16", kind, kSmBFloat16, AICF_CUDA_LAUNCH(launch), supports_dtype<DType::BF16>,      \
          workspace),                                                                                  \
      row(name "_f32", kind, kSmAny, AICF_CUDA_LAUNCH(launch), supports_dtype<DType::F32>, workspace), \
      row(name "_f64", kind, kSmAny, AICF_CUDA_LAUNCH(launch), supports_dtype<DType::F64>, workspace)
#define AICF_CUDA_FLOAT_ROWS(name, kind, launch, workspace) \
  AICF_CUDA_FLOAT_ROWS_BY(cuda_row, name, kind, launch, workspace)
