// sgd_step and adam_step of the GPU, on the host: the table, the choice of a kernel, and the kernel thread by
// thread. Built with the headers of tests/py/support/toolkit_on_host in the place of CUDA's.
#include "kernels/optim/cuda.cu"

namespace aicf {

Status cuda_status(cudaError_t, const char* call, const char*, int) { return Status::device(call); }

}  // namespace aicf

// Addresses in rows of kMostStates and kMostScalars, one for each tensor. Returns how many kernels ran, or
// -1.
extern "C" int update_on_host(bool adam, int dtype, bool has_state, bool nesterov, bool decoupled,
                              bool maximize, int64_t count, const int64_t* numels, const int* gradients,
                              const void* const* old_values, void* const* new_values,
                              const void* const* scalars, const int64_t* predicate,
                              bool from_the_last_thread) {
  aicf::Updates updates;
  updates.dtype = static_cast<aicf::DType>(dtype);
  updates.has_state = has_state;
  updates.nesterov = nesterov;
  updates.decoupled = decoupled;
  updates.maximize = maximize;
  for (int64_t i = 0; i < count; ++i) {
    if (numels[i] == 0) continue;
    aicf::TensorUpdate tensor;
    tensor.numel = numels[i];
    tensor.gradient = static_cast<aicf::DType>(gradients[i]);
    updates.mixed |= tensor.gradient != updates.dtype;
    std::copy_n(old_values + i * aicf::kMostStates, aicf::kMostStates, tensor.old_values.begin());
    std::copy_n(new_values + i * aicf::kMostStates, aicf::kMostStates, tensor.new_values.begin());
    std::copy_n(scalars + i * aicf::kMostScalars, aicf::kMostScalars, tensor.scalars.begin());
    updates.tensors.push_back(tensor);
  }
  aicf::LaunchContext context;
  context.predicate = predicate;
  backwards = from_the_last_thread;
  launches = 0;
  const aicf::Status status =
      adam ? aicf::adam_step_cuda(updates, context) : aicf::sgd_step_cuda(updates, context);
  return status.is_ok() ? launches : -1;
}
