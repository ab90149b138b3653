#include <cstring>
#include <string>

#include "device/cuda_status.h"

namespace aicf {
namespace {

// After these the CUDA context is lost: every later call fails with the same error.
bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
      return true;
    default:
      return false;
  }
}

// The path from the source root on, whatever folder the build ran in.
const char* relative(const char* file) {
  const char* root = std::strstr(file, "csrc/");
  return root ? root : file;
}

}  // namespace

Status cuda_status(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return Status::ok();
  (void)cudaGetLastError();
  std::string message = std::string(relative(file)) + ":" + std::to_string(line) + ": " + call + ": " +
                        cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
  if (is_sticky(error))
    message +=
        "; the CUDA context of this process is lost, so the process must be restarted "
        "(run it under compute-sanitizer to find the access)";
  return Status::device(std::move(message));
}

}  // namespace aicf
