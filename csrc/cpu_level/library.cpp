// The entries of a library of CPU kernels; see runtime/cpu_level.h. Built with the sources of the kernels
// and their registry once more, with other instructions; nothing else leaves it, so no function that was
// compiled for a newer processor can stand in for one of the module.
#include "kernels/collective/exchange.h"
#include "kernels/common/cpu_blas.h"
#include "kernels/common/cpu_parallel.h"
#include "kernels/gemm/cpu_product.h"
#include "op/registry.h"

#define AICF_EXPORT extern "C" __attribute__((visibility("default")))
#pragma GCC diagnostic ignored "-Wreturn-type-c-linkage"  // both sides are C++ of one compiler

AICF_EXPORT aicf::Status aicf_cpu_load_blas(const std::string& path) { return aicf::load_blas(path); }

AICF_EXPORT void aicf_cpu_use_threads(aicf::cpu::RunLoop run) { aicf::cpu::use_threads(run); }

AICF_EXPORT void aicf_cpu_use_exchange(aicf::RunExchange run) { aicf::use_exchange(run); }

// Null where this library has no such kernel.
AICF_EXPORT const aicf::KernelVariant* aicf_cpu_kernel(const char* name) {
  const aicf::KernelVariant* variant = aicf::KernelRegistry::get().find(name);
  return variant && variant->device == aicf::DeviceType::Cpu ? variant : nullptr;
}

// Null for another name.
AICF_EXPORT aicf::cpu::ProductFunction aicf_cpu_product(const std::string& name) {
  return aicf::cpu::product_function(name);
}
