#include "kernels/gemm/problem.h"

#include <stdexcept>

#include "kernels/common/schema_checks.h"
#include "kernels/common/strided_shape.h"

namespace aicf {
namespace {

// How the last two dimensions of a tensor lie in memory.
struct Storage {
  bool by_rows, by_columns;  // at most one; neither: a matrix that a GemmProblem cannot say
  int64_t leading;           // from row to row, or from column to column
};

Storage storage_of(const TensorDesc& t) {
  const int64_t rows = t.shape[t.rank - 2], columns = t.shape[t.rank - 1];
  const int64_t row = t.strides[t.rank - 2], column = t.strides[t.rank - 1];
  if (t.contiguous()) return {true, false, columns};
  if ((column == 1 || columns == 1) && (rows == 1 || row >= columns))
    return {true, false, rows == 1 ? columns : row};
  if ((row == 1 || rows == 1) && (columns == 1 || column >= rows))
    return {false, true, columns == 1 ? rows : column};
  return {false, false, 0};
}

// Reads the matrices of a or b; `transposed` becomes that of the matrix in memory.
Status read_operand(const TensorDesc& t, const char* name, Matrices<const void*>* out, bool* transposed) {
  const Storage storage = storage_of(t);
  if (!storage.by_rows && !storage.by_columns)
    return decline("needs ", name,
                   " with neighbours along one of its last two dimensions and at least as much between "
                   "those of the other, ",
                   name, " is ", t.str(), " with strides ", t.strides_str());
  out->data = t.data;
  out->leading = storage.leading;
  *transposed = *transposed != storage.by_columns;
  return Status::ok();
}

template <class Pointer>
Status read_rows(const TensorDesc& t, const char* name, Matrices<Pointer>* out) {
  const Storage storage = storage_of(t);
  if (!storage.by_rows)
    return decline("needs ", name,
                   " with neighbours along its last dimension and at least as much between its rows, ", name,
                   " is ", t.str(), " with strides ", t.strides_str());
  out->data = t.data;
  out->leading = storage.leading;
  return Status::ok();
}

// Its strides mean nothing without elements, or without the operand.
int64_t batch_stride(const TensorDesc* t, int d) { return t && t->numel() ? t->strides[d] : 0; }

Status read_batch(const OpDesc& op, const TensorDesc* saved, const TensorDesc* pre, GemmProblem* p) {
  const TensorDesc &a = op.in("a"), &b = op.in("b"), &out = op.out("out");
  StridedShape<5> levels;
  p->batch = p->inner_batch = 1;
  for (int d = 0; d < out.rank - 2; ++d) {
    levels.append(out.shape[d], {batch_stride(&a, d), batch_stride(&b, d), batch_stride(&out, d),
                                 batch_stride(saved, d), batch_stride(pre, d)});
    p->batch *= out.shape[d];
  }
  if (levels.rank > 2)
    return decline("needs a batch of at most two levels, each with one step for every operand, got ",
                   levels.rank, " of a ", a.str(), " with strides ", a.strides_str(), ", b ", b.str(),
                   " with strides ", b.strides_str(), ", out ", out.str(), " with strides ",
                   out.strides_str());
  if (levels.rank == 2) p->inner_batch = levels.shape[1];
  int operand = 0;
  const auto place = [&](auto* matrices) {
    matrices->outer = levels.strides[operand][0];
    matrices->inner = levels.rank == 2 ? levels.strides[operand][1] : 0;
    ++operand;
  };
  place(&p->a);
  place(&p->b);
  place(&p->out);
  place(&p->saved);
  place(&p->pre);
  return Status::ok();
}

}  // namespace

Status read_gemm_problem(const OpDesc& op, GemmProblem* result) {
  const TensorDesc &a = op.in("a"), &b = op.in("b"), &out = op.out("out");
  GemmProblem p{};
  p.dtype = out.dtype;
  p.trans_a = op.attrs.get(kTransA);
  p.trans_b = op.attrs.get(kTransB);
  p.m = out.shape[out.rank - 2];
  p.n = out.shape[out.rank - 1];
  p.k = a.shape[a.rank - (p.trans_a ? 2 : 1)];
  AICF_TRY(read_operand(a, "a", &p.a, &p.trans_a));
  AICF_TRY(read_operand(b, "b", &p.b, &p.trans_b));
  AICF_TRY(read_rows(out, "out", &p.out));

  const TensorDesc *saved = nullptr, *pre = nullptr;
  if (op.schema->inputs.size() > 2) {  // gemm_epilogue
    p.act = op.attrs.get(kAct);
    p.act_grad = op.attrs.get(kActGrad);
    if (op.has_in("bias")) p.bias = op.in("bias").data;
    if (op.has_out("bias_grad")) p.bias_grad = op.out("bias_grad").data;
    if (op.has_in("saved")) saved = &op.in("saved");
    if (op.has_out("pre")) pre = &op.out("pre");
    if (saved) AICF_TRY(read_rows(*saved, "saved", &p.saved));
    if (pre) AICF_TRY(read_rows(*pre, "pre", &p.pre));
  }
  AICF_TRY(read_batch(op, saved, pre, &p));
  *result = p;
  return Status::ok();
}

GemmProblem gemm_problem(const OpDesc& op) {
  GemmProblem p{};
  const Status accepted = read_gemm_problem(op, &p);
  if (!accepted.is_ok()) throw std::logic_error(accepted.message());
  return p;
}

}  // namespace aicf
