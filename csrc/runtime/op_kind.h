// Every launch the runtime knows, once: the C++ name, the number (stable, shared with Python) and the
// kernel-dialect name.
#pragma once
#include <cstdint>

#define AICF_OP_KINDS(X)                        \
  X(EltwiseAdd, 0, "add")                       \
  X(EltwiseRelu, 1, "relu")                     \
  X(Gemm, 2, "gemm")                            \
  X(GemmEpilogue, 3, "gemm_epilogue")           \
  X(BiasAdd, 4, "bias_add")                     \
  X(EltwiseSub, 5, "sub")                       \
  X(EltwiseMul, 6, "mul")                       \
  X(EltwiseDiv, 7, "div")                       \
  X(EltwiseNeg, 8, "neg")                       \
  X(EltwiseGelu, 9, "gelu")                     \
  X(EltwiseGeluTanh, 10, "gelu_tanh")           \
  X(EltwiseSilu, 11, "silu")                    \
  X(EltwiseTanh, 12, "tanh")                    \
  X(EltwiseSigmoid, 13, "sigmoid")              \
  X(ReluBwd, 14, "relu_bwd")                    \
  X(GeluBwd, 15, "gelu_bwd")                    \
  X(GeluTanhBwd, 16, "gelu_tanh_bwd")           \
  X(SiluBwd, 17, "silu_bwd")                    \
  X(TanhBwd, 18, "tanh_bwd")                    \
  X(SigmoidBwd, 19, "sigmoid_bwd")              \
  X(ReduceSum, 20, "reduce_sum")                \
  X(MseLoss, 21, "mse_loss")                    \
  X(MseGrad, 22, "mse_grad")                    \
  X(CrossEntropy, 23, "cross_entropy")          \
  X(CrossEntropyGrad, 24, "cross_entropy_grad") \
  X(Copy, 25, "copy")                           \
  X(Transpose, 26, "transpose")                 \
  X(Broadcast, 27, "broadcast")                 \
  X(Advance, 28, "advance")                     \
  X(SgdStep, 29, "sgd_step")                    \
  X(AdamStep, 30, "adam_step")                  \
  X(CheckIndex, 31, "check_index")              \
  X(CheckFinite, 32, "check_finite")

namespace aicf {

enum class OpKind : int32_t {
#define X(name, number, text) name = number,
  AICF_OP_KINDS(X)
#undef X
};

// The kernel-dialect name, e.g. "gemm_epilogue"; null for a number outside the enum.
const char* op_name(OpKind kind);

}  // namespace aicf
