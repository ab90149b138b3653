// Enough of CUDA's runtime to launch a kernel of csrc/kernels on the host: blocks of fibers, one after the
// other.
#pragma once
#include <math.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "cuda_on_host.h"

#define __align__(bytes) __attribute__((aligned(bytes)))

struct dim3 {
  unsigned x, y = 1, z = 1;
  dim3(unsigned x_ = 1) : x(x_) {}
};
static Index blockDim;
static bool backwards = false;  // see run_grid
static int launches = 0;

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess, cudaErrorLaunchFailure };
constexpr int cudaFuncAttributeMaxDynamicSharedMemorySize = 8;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
};
inline cudaError_t cudaFuncSetAttribute(const void*, int, int) { return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  static std::function<void()> launched;
  launched = [=] { kernel(arguments...); };
  blockDim.x = config->blockDim.x;
  ++launches;
  const int failed = run_grid([] { launched(); }, config->gridDim.x, config->blockDim.x, backwards);
  return failed ? cudaErrorLaunchFailure : cudaSuccess;
}
