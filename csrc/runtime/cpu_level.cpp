#include "runtime/cpu_level.h"

#include <dlfcn.h>

#include "device/pool.h"
#include "kernels/collective/exchange.h"
#include "kernels/common/cpu_parallel.h"
#include "op/registry.h"
#include "runtime/called_functions.h"

namespace aicf {
namespace {

template <class Function>
bool find_symbol(void* library, const char* name, Function** out) {
  *out = reinterpret_cast<Function*>(dlsym(library, name));
  return *out != nullptr;
}

}  // namespace

Status load_cpu_kernels(const std::string& path, const std::string& blas_path) {
  const auto refuse = [&](const std::string& why) {
    return Status::device("the CPU kernels in " + path + " cannot be used: " + why);
  };
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays open: the registry points into it
  if (!library) return refuse(dlerror());
  Status (*blas)(const std::string&) = nullptr;
  const KernelVariant* (*kernel)(const char*) = nullptr;
  void (*use_threads)(cpu::RunLoop) = nullptr;
  void (*use_exchange)(RunExchange) = nullptr;
  cpu::ProductFunction (*product)(const std::string&) = nullptr;
  if (!find_symbol(library, "aicf_cpu_load_blas", &blas) ||
      !find_symbol(library, "aicf_cpu_kernel", &kernel) ||
      !find_symbol(library, "aicf_cpu_use_threads", &use_threads) ||
      !find_symbol(library, "aicf_cpu_use_exchange", &use_exchange) ||
      !find_symbol(library, "aicf_cpu_product", &product))
    return refuse("it is no library of this version");
  AICF_TRY(blas(blas_path));
  use_threads(&run_in_pool);
  use_exchange(&run_exchange);
  use_products(product);
  const std::string missing = KernelRegistry::get().replace_cpu_kernels(kernel);
  return missing.empty() ? Status::ok() : refuse("it has no kernel '" + missing + "'");
}

}  // namespace aicf
