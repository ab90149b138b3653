// Launchers of gemm and gemm_epilogue; each serves both (gemm is the epilogue with nothing in it). See
// problem.h for the meaning.
#pragma once
#include "runtime/kernel.h"

namespace aicf {

// f32 and f64 through the loaded BLAS, then one pass over the result for the epilogue.
Status gemm_cpu_blas(const OpDesc& op, const LaunchContext& ctx);
size_t gemm_cpu_blas_workspace(const OpDesc& op);
// Any float dtype, no library.
Status gemm_cpu_plain(const OpDesc& op, const LaunchContext& ctx);

// f16 and bf16 on tensor cores with f32 accumulators; any sizes.
Status gemm_tc_cuda(const OpDesc& op, const LaunchContext& ctx);
// f32 through shared memory, one block of threads per 64x64 or 32x32 tile of the result; any sizes.
Status gemm_tiled_64x64_cuda(const OpDesc& op, const LaunchContext& ctx);
Status gemm_tiled_32x32_cuda(const OpDesc& op, const LaunchContext& ctx);
// f32 and f64, one thread per element of the result; any sizes.
Status gemm_naive_cuda(const OpDesc& op, const LaunchContext& ctx);

}  // namespace aicf
