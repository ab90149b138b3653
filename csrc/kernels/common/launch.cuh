// How every CUDA kernel of this project is launched: one place that checks the launch.
#pragma once
#include <cuda_runtime.h>

#include <utility>

#include "device/cuda_dependent.cuh"
#include "device/cuda_status.h"
#include "op/variant.h"

namespace aicf::cuda {

constexpr int kWarp = 32;
constexpr size_t kStaticSharedBytes = 48 * 1024;  // more must be asked for, kernel by kernel

template <class Integer>
constexpr Integer ceil_div(Integer a, Integer b) {
  return (a + b - 1) / b;
}

// Blocks for a grid-stride loop over `items` (one item a thread): enough to fill any chip, few enough to
// start quickly. The number depends on `items` alone, never on the device.
inline unsigned grid_stride_blocks(int64_t items, int threads) {
  constexpr int64_t kMost = 132 * 16;
  const int64_t blocks = ceil_div<int64_t>(items, threads);
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < kMost ? blocks : kMost);
}

// Whether a launch with this status in ctx.predicate does nothing; the same for all threads of a launch.
__device__ __forceinline__ bool skipped(const int64_t* predicate) { return predicate && *predicate != 0; }

// Enqueues `kernel`, which begins with dependency_wait(), on ctx.stream with `shared` bytes of dynamic shared
// memory. Safe inside a capture.
template <class... Parameters, class... Arguments>
Status launch(const LaunchContext& ctx, dim3 grid, dim3 block, size_t shared, void (*kernel)(Parameters...),
              Arguments&&... arguments) {
  if (shared > kStaticSharedBytes)
    AICF_CUDA_TRY(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(shared)));
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = static_cast<cudaStream_t>(ctx.stream);
  cudaLaunchAttribute attribute = {};
  AICF_TRY(allow_programmatic(ctx, reinterpret_cast<const void*>(kernel), &config, &attribute));
  AICF_CUDA_TRY(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
  AICF_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

}  // namespace aicf::cuda
