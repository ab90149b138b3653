// One launch of gemm or gemm_epilogue in the form that every kernel needs: sizes, pointers, epilogue. Read
// from a checked OpDesc.
#pragma once
#include <cstdint>

#include "kernels/eltwise/ops.h"
#include "op/variant.h"

namespace aicf {

constexpr Attr<bool> kTransA{"trans_a", false}, kTransB{"trans_b", false};
constexpr Attr<Act> kAct{"act", Act::None}, kActGrad{"act_grad", Act::None};

// Row-major, contiguous. For each of `batch` independent products, and i < m, j < n, l < k:
//   op(a)[i, l] = trans_a ? a[l, i] : a[i, l]      lda = trans_a ? m : k elements between rows of a
//   op(b)[l, j] = trans_b ? b[j, l] : b[l, j]      ldb = trans_b ? k : n elements between rows of b
//   z[i, j] = sum over l of op(a)[i, l] op(b)[l, j] (+ bias[j])
//   pre = z;  out = act(z), or act_grad's backward function of (z, saved[i, j])
//   bias_grad[i] = sum over l of op(a)[i, l]        (batch is 1)
// Batch p of a, b, out, pre and saved starts p * (m*k, k*n, m*n, m*n, m*n) elements on. Sums and epilogue are
// computed in f32 (f64 for f64), and each result is rounded once.
struct GemmProblem {
  DType dtype;
  int64_t batch, m, n, k;
  bool trans_a, trans_b;
  int64_t lda, ldb;
  const void* a;
  const void* b;
  const void* bias;   // null without
  const void* saved;  // null without; may be the same memory as out
  void* out;
  void* pre;        // null without
  void* bias_grad;  // null without
  // At most one of the two is not Act::None.
  Act act, act_grad;

  bool plain() const {
    return !bias && !saved && !pre && act == Act::None;
  }  // out = z and nothing else on each element
};

// Sizes and epilogue need no data, so this also serves planning (pointers are then null, and plain() says
// nothing).
GemmProblem gemm_problem(const OpDesc& op);

}  // namespace aicf
