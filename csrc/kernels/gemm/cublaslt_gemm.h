// gemm and gemm_epilogue by cuBLASLt: what they take, when they are taken, and the memory that they need.
#pragma once
#include "kernels/gemm/problem.h"

namespace aicf {

// How the library multiplies a batch. It takes one step from product to product: of two levels the smaller
// one has a call for each of its members.
struct LibraryCalls {
  int64_t count, batch;  // calls of one launch, products of each
  bool is_outer;         // whether the outer level has a call for each member
  explicit LibraryCalls(const GemmProblem& p);

  // From product to product of a call, and from call to call.
  template <class Pointer>
  int64_t step(const Matrices<Pointer>& matrices) const {
    return is_outer ? matrices.inner : matrices.outer;
  }
  template <class Pointer>
  int64_t next(const Matrices<Pointer>& matrices) const {
    return is_outer ? matrices.outer : matrices.inner;
  }
};

// A bias, relu, or one behind the other: what the library's epilogues are.
Status supports_cublaslt(const OpDesc& op);
// Why a plan that names no kernel has a product of our own, if it does.
Status prefers_cublaslt(const OpDesc& op);
size_t cublaslt_workspace(const OpDesc& op);
// TF32: f32 operands are rounded to it.
template <bool TF32>
Status prepare_cublaslt(const KernelVariant& self, const OpDesc& op, const std::string& asked,
                        LaunchPointer* out);
template <bool TF32>
Status choices_of_cublaslt(const OpDesc& op, std::vector<std::string>* out);

}  // namespace aicf
