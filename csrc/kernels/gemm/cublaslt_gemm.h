// gemm and gemm_epilogue by cuBLASLt: what they take, and the memory that they need. The rest of the
// epilogue, where the library has none for it, is a second pass over the result.
#pragma once
#include "kernels/gemm/problem.h"

namespace aicf {

// What a launch asks of the library, and what is left for the pass behind it.
struct CublasLtPlan {
  bool adds_bias, applies_relu, sums_bias_gradient;  // in the library's epilogue
  bool finishes;                                     // a second pass: activation, its gradient, bias of f64
  bool to_panel, to_pre;                             // where the library writes; neither: to the result
};
// Of an operation, by which operands it has.
CublasLtPlan cublaslt_plan(const OpDesc& op);

Status supports_cublaslt(const OpDesc& op);
size_t cublaslt_workspace(const OpDesc& op);
// TF32: f32 operands are rounded to it.
template <bool TF32>
Status prepare_cublaslt(const KernelVariant& self, const OpDesc& op, const std::string& asked,
                        LaunchPointer* out);
template <bool TF32>
Status choices_of_cublaslt(const OpDesc& op, std::vector<std::string>* out);

}  // namespace aicf
