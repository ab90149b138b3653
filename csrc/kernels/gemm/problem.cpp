#include "kernels/gemm/problem.h"

namespace aicf {

GemmProblem gemm_problem(const OpDesc& op) {
  const TensorDesc &a = op.in("a"), &b = op.in("b"), &out = op.out("out");
  GemmProblem p{};
  p.dtype = out.dtype;
  p.batch = 1;
  for (int i = 0; i < out.rank - 2; ++i) p.batch *= out.shape[i];
  p.trans_a = op.attrs.get(kTransA);
  p.trans_b = op.attrs.get(kTransB);
  p.m = out.shape[out.rank - 2];
  p.n = out.shape[out.rank - 1];
  p.k = a.shape[a.rank - (p.trans_a ? 2 : 1)];
  p.lda = p.trans_a ? p.m : p.k;
  p.ldb = p.trans_b ? p.k : p.n;
  p.a = a.data;
  p.b = b.data;
  p.out = out.data;

  if (op.schema->inputs.size() == 2) return p;  // gemm
  p.act = op.attrs.get(kAct);
  p.act_grad = op.attrs.get(kActGrad);
  if (op.has_in("bias")) p.bias = op.in("bias").data;
  if (op.has_in("saved")) p.saved = op.in("saved").data;
  if (op.has_out("pre")) p.pre = op.out("pre").data;
  if (op.has_out("bias_grad")) p.bias_grad = op.out("bias_grad").data;
  return p;
}

}  // namespace aicf
