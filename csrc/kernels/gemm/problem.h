// One launch of gemm or gemm_epilogue in the form that every kernel needs: sizes, matrices, epilogue. Read
// from a checked OpDesc.
#pragma once
#include <cstdint>

#include "kernels/eltwise/ops.h"
#include "op/variant.h"

namespace aicf {

constexpr Attr<bool> kTransA{"trans_a", false}, kTransB{"trans_b", false};
// Of f32 operands: they may be rounded to TF32, 10 bits of the mantissa, before they are multiplied. Products
// of two of them are exact in f32, and the sums stay f32. A kernel that rounds is named "tf32"; others take
// such an operation too.
constexpr Attr<bool> kAllowTF32{"allow_tf32", false};
constexpr Attr<Act> kAct{"act", Act::None}, kActGrad{"act_grad", Act::None};

// The products of a batch stand in two levels, as those of [batch, heads, time, size] do.
struct Product {
  int64_t outer, inner;
};

// An operand's matrices: row-major, `leading` elements from row to row, and `outer` and `inner` elements from
// product to product of each level (0: the same matrix for all).
template <class Pointer>
struct Matrices {
  Pointer data;  // null without the operand
  int64_t leading, outer, inner;

  // The first element of the matrix of `product`; T is const for an operand.
  template <class T>
  AICF_HD T* of(const Product& product) const {
    return static_cast<T*>(data) + (product.outer * outer + product.inner * inner);
  }
};

// For each of `batch` products, and i < m, j < n, l < k:
//   op(a)[i, l] = trans_a ? a[l, i] : a[i, l]
//   op(b)[l, j] = trans_b ? b[j, l] : b[l, j]
//   z[i, j] = sum over l of op(a)[i, l] op(b)[l, j] (+ bias[j])
//   pre = z;  out = act(z), or act_grad's backward function of (z, saved[i, j])
//   bias_grad[i] = sum over l of op(a)[i, l]        (batch is 1)
// trans_a and trans_b are of the matrices in memory: an operand that lies there by columns is the transpose
// of one that lies by rows. Sums and epilogue are computed in f32 (f64 for f64), and each result is rounded
// once.
struct GemmProblem {
  DType dtype;
  int64_t batch, inner_batch;  // products in all, and of the inner level, which divides them
  int64_t m, n, k;
  bool trans_a, trans_b;
  Matrices<const void*> a, b;
  Matrices<const void*> saved;  // may be the same memory as out
  Matrices<void*> out, pre;
  const void* bias;  // null without
  void* bias_grad;   // null without
  // At most one of the two is not Act::None.
  Act act, act_grad;

  AICF_HD Product product(int64_t index) const {
    if (inner_batch == 1) return {index, 0};
    return {index / inner_batch, index % inner_batch};
  }
  bool plain() const {
    return !bias && !saved.data && !pre.data && act == Act::None;
  }  // out = z and nothing else on each element
};

// Declines strides that a GemmProblem cannot say: a or b without neighbours along one of its last two
// dimensions, another operand without those along its last one, a batch of more than two levels.
Status read_gemm_problem(const OpDesc& op, GemmProblem* out);

// Of an operation that read_gemm_problem accepts. Sizes and epilogue need no data, so this also serves
// planning (pointers are then null, and plain() says nothing).
GemmProblem gemm_problem(const OpDesc& op);

}  // namespace aicf
