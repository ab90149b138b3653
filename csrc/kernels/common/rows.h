// Rows of the tables of kernels: name, op, device and lowest compute capability, what makes a launch ready,
// predicate, workspace.
#pragma once
#include "kernels/common/schema_checks.h"
#include "op/variant.h"

namespace aicf {

// Lowest compute capability of CUDA kernels, by what they use.
constexpr int kSmAny = 80;       // the oldest that an installation has code for (CMakeLists.txt)
constexpr int kSmBFloat16 = 80;  // bf16 arithmetic

using SupportFunction = Status (*)(const OpDesc&);
using WorkspaceFunction = size_t (*)(const OpDesc&);

constexpr KernelVariant cuda_row(const char* name, const char* op, int min_sm, Prepare prepare,
                                 SupportFunction supported, WorkspaceFunction workspace = nullptr) {
  return {name, op, DeviceType::Cuda, min_sm, prepare, supported, workspace};
}

constexpr KernelVariant cpu_row(const char* name, const char* op, Prepare prepare,
                                SupportFunction supported = needs_dense,
                                WorkspaceFunction workspace = nullptr) {
  return {name, op, DeviceType::Cpu, 0, prepare, supported, workspace};
}

// Of a kernel that does nothing where *ctx.predicate is not 0.
constexpr KernelVariant skippable_cuda_row(const char* name, const char* op, int min_sm, Prepare prepare,
                                           SupportFunction supported, WorkspaceFunction workspace = nullptr) {
  KernelVariant variant = cuda_row(name, op, min_sm, prepare, supported, workspace);
  variant.skippable = true;
  return variant;
}

// Of a kernel with code for this compute capability alone.
constexpr KernelVariant only_on(int sm, KernelVariant variant) {
  variant.min_sm = variant.max_sm = sm;
  return variant;
}

// Of a kernel that has a choice.
constexpr KernelVariant choosing(KernelVariant variant, Choices choices) {
  variant.choices = choices;
  return variant;
}

// Of a kernel that is taken of its own accord where `preferred` agrees.
constexpr KernelVariant preferring(KernelVariant variant, SupportFunction preferred) {
  variant.preferred = preferred;
  return variant;
}

// Of a kernel of a library.
constexpr KernelVariant library_row(Library library, const char* name, const char* op, int min_sm,
                                    Prepare prepare, SupportFunction supported, SupportFunction preferred,
                                    WorkspaceFunction workspace) {
  KernelVariant variant = preferring(cuda_row(name, op, min_sm, prepare, supported, workspace), preferred);
  variant.library = library;
  return variant;
}

}  // namespace aicf

// A row for each float type, NAME_f16 and so on, of one function that serves all of them. `row` makes it.
#define AICF_CUDA_FLOAT_ROWS_BY(row, name, op, prepare, workspace)                                    \
  row(name "_f16", op, kSmAny, AICF_CUDA(prepare), supports_dtype<DType::F16>, workspace),            \
      row(name "_bf16", op, kSmBFloat16, AICF_CUDA(prepare), supports_dtype<DType::BF16>, workspace), \
      row(name "_f32", op, kSmAny, AICF_CUDA(prepare), supports_dtype<DType::F32>, workspace),        \
      row(name "_f64", op, kSmAny, AICF_CUDA(prepare), supports_dtype<DType::F64>, workspace)
#define AICF_CUDA_FLOAT_ROWS(name, prepare, workspace) \
  AICF_CUDA_FLOAT_ROWS_BY(cuda_row, name, name, prepare, workspace)
