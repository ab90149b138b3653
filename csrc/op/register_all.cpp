// The only place of registration. Families in the order of a train step; within a family the order of rows is
// preference.
#include "op/registry.h"

namespace aicf {

void register_gemm(KernelRegistry& registry);
void register_eltwise(KernelRegistry& registry);
void register_reduce(KernelRegistry& registry);
void register_loss(KernelRegistry& registry);
void register_copy(KernelRegistry& registry);
void register_check(KernelRegistry& registry);
void register_optim(KernelRegistry& registry);

void register_all(KernelRegistry& registry) {
  register_gemm(registry);
  register_eltwise(registry);
  register_reduce(registry);
  register_loss(registry);
  register_copy(registry);
  register_check(registry);
  register_optim(registry);
}

}  // namespace aicf
