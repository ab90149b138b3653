// Kernels of gemm and gemm_epilogue; each serves both (gemm is the epilogue with nothing in it). See
// problem.h for the meaning.
#pragma once
#include "kernels/gemm/problem.h"
#include "kernels/gemm/tiles.h"

namespace aicf {

// A product of f32 or f64 by code of our own that packs its operands (f32, where the processor has what that
// needs), or in blocks of the loaded BLAS; then the epilogue over each part of the result.
constexpr const char *kPacked = "packed", *kInBlocks = "blocks";
struct CpuBlasGemm {
  GemmProblem problem;
  bool packed;
  std::string choice() const { return packed ? kPacked : kInBlocks; }
};
Status choices_of_cpu_blas(const OpDesc& op, std::vector<std::string>* out);
CpuBlasGemm cpu_blas_gemm(const OpDesc& op, const std::string& choice);
Status gemm_cpu_blas(const CpuBlasGemm& gemm, const LaunchContext& ctx);
size_t gemm_cpu_blas_workspace(const OpDesc& op);
// Any float dtype, no library.
size_t gemm_cpu_plain_workspace(const OpDesc& op);
Status gemm_cpu_plain(const GemmProblem& p, const LaunchContext& ctx);

// A product and how it is divided.
struct TiledGemm {
  GemmProblem problem;
  Division division;
  std::string choice() const {
    const std::string tile = std::to_string(division.tile.rows) + "x" + std::to_string(division.tile.columns);
    return division.split_k > 1 ? tile + "/" + std::to_string(division.split_k) : tile;
  }
};
// First that of tensor_core_division, then all tiles with k undivided; those of 16x16 where 64x64 are too
// few.
Status choices_of_tensor_cores(const OpDesc& op, std::vector<std::string>* out);
TiledGemm tensor_core_gemm(const OpDesc& op, const std::string& choice);
// For the sums of the parts of k, and for those of rows of a.
size_t tensor_core_workspace(const OpDesc& op);

// f16, bf16 and, of f32, TF32 on tensor cores with f32 accumulators; any sizes.
template <DType dtype>
Status gemm_tc_cuda(const TiledGemm& gemm, const LaunchContext& ctx);
// f32 through shared memory and registers, one block of threads per tile; any sizes.
Status gemm_tiled_128x64_cuda(const GemmProblem& p, const LaunchContext& ctx);
Status gemm_tiled_64x64_cuda(const GemmProblem& p, const LaunchContext& ctx);
Status gemm_tiled_64x32_cuda(const GemmProblem& p, const LaunchContext& ctx);
Status gemm_tiled_32x32_cuda(const GemmProblem& p, const LaunchContext& ctx);
Status gemm_tiled_16x16_cuda(const GemmProblem& p, const LaunchContext& ctx);
// f32, of at most 16 terms: a warp per row, its columns of b in registers.
Status gemm_short_sums_cuda(const GemmProblem& p, const LaunchContext& ctx);
// f32 and f64, one thread per element of the result; any sizes.
Status gemm_naive_cuda(const GemmProblem& p, const LaunchContext& ctx);

}  // namespace aicf
