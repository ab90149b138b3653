#include "kernels/gemm/problem.h"

namespace aicf {

GemmProblem gemm_problem(const OpDesc& op) {
  const TensorDesc &a = op.inputs[0], &b = op.inputs[1], &out = op.outputs[0];
  GemmProblem p{};
  p.dtype = out.dtype;
  p.batch = 1;
  for (int i = 0; i < out.rank - 2; ++i) p.batch *= out.shape[i];
  p.trans_a = op.attrs.flag(AttrKey::trans_a);
  p.trans_b = op.attrs.flag(AttrKey::trans_b);
  p.m = out.shape[out.rank - 2];
  p.n = out.shape[out.rank - 1];
  p.k = a.shape[a.rank - (p.trans_a ? 2 : 1)];
  p.lda = p.trans_a ? p.m : p.k;
  p.ldb = p.trans_b ? p.k : p.n;
  p.a = a.data;
  p.b = b.data;
  p.out = out.data;

  size_t input = 2, output = 1;
  if (op.attrs.flag(AttrKey::bias)) p.bias = op.inputs[input++].data;
  p.act = op.attrs.act(AttrKey::act);
  p.act_grad = op.attrs.act(AttrKey::act_grad);
  if (p.act_grad != Act::None) p.saved = op.inputs[input++].data;
  if (op.attrs.flag(AttrKey::pre)) p.pre = op.outputs[output++].data;
  if (op.attrs.flag(AttrKey::bias_grad)) p.bias_grad = op.outputs[output++].data;
  return p;
}

}  // namespace aicf
