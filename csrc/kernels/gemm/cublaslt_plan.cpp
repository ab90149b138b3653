#include <algorithm>
#include <climits>

#include "kernels/common/schema_checks.h"
#include "kernels/gemm/cublaslt_gemm.h"

namespace aicf {
namespace {

constexpr size_t kAlignment = 256, kLargestWorkspace = size_t{32} << 20;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool has_epilogue(const OpDesc& op) { return op.schema->inputs.size() > 2; }

}  // namespace

CublasLtPlan cublaslt_plan(const OpDesc& op) {
  CublasLtPlan plan{};
  if (!has_epilogue(op)) return plan;
  const Act act = op.attrs.get(kAct), act_grad = op.attrs.get(kActGrad);
  const bool is_f64 = op.outputs[0].dtype == DType::F64, pre = op.has_out("pre");
  plan.adds_bias = op.has_in("bias") && !is_f64;
  plan.applies_relu = act == Act::Relu && !pre && !is_f64;
  plan.sums_bias_gradient = op.has_out("bias_grad");
  plan.to_panel = act_grad != Act::None;  // the result may be the memory of `saved`
  plan.to_pre = pre;
  plan.finishes = act_grad != Act::None || (act != Act::None && !plan.applies_relu) ||
                  (op.has_in("bias") && !plan.adds_bias);
  return plan;
}

Status supports_cublaslt(const OpDesc& op) {
  GemmProblem p{};
  AICF_TRY(read_gemm_problem(op, &p));
  if (p.batch == 0 || p.m == 0 || p.n == 0 || p.k == 0) return decline("needs elements to multiply");
  if (p.batch > INT_MAX || p.m > INT_MAX || p.n > INT_MAX || p.k > INT_MAX)
    return decline("needs dimensions below 2^31, got m = ", p.m, ", n = ", p.n, ", k = ", p.k,
                   ", batch = ", p.batch);
  if (p.inner_batch != 1 && p.inner_batch != p.batch)
    return decline("needs a batch of one level, each operand with one step, got ", p.batch / p.inner_batch,
                   " x ", p.inner_batch);
  const bool exact = p.act == Act::None || p.act == Act::Relu,
             exact_grad = p.act_grad == Act::None || p.act_grad == Act::Relu;
  if (dtype_size(p.dtype) == 2 && !(exact && exact_grad))
    return decline("in ", dtype_name(p.dtype),
                   " the product is rounded before the activation: needs relu or none");
  if (has_epilogue(op)) {
    // The library's sum was seen to differ from run to run for a single column, and has no algorithm for
    // many sizes: it is a launch of its own.
    if (op.has_out("bias_grad")) return decline("has no bias_grad: it is a launch of its own");
    if (op.has_out("pre") && p.act == Act::None) return decline("needs pre beside an activation");
  }
  return needs_element_alignment(op);
}

// For partial sums of parts of k, where the result alone does not fill the chip; a rule of the sizes, for
// plans are made where there is no library to ask.
size_t cublaslt_workspace(const OpDesc& op) {
  const GemmProblem p = gemm_problem(op);
  constexpr int64_t kShortestPart = 64;
  const double parts = static_cast<double>((p.k + kShortestPart - 1) / kShortestPart);
  const double sums = parts * static_cast<double>(p.batch) * static_cast<double>(p.m) *
                      static_cast<double>(p.n) * sizeof(float);
  const size_t panel = cublaslt_plan(op).to_panel
                           ? aligned(static_cast<size_t>(p.batch * p.m * p.n) * dtype_size(p.dtype))
                           : 0;
  return panel + aligned(static_cast<size_t>(std::min(sums, static_cast<double>(kLargestWorkspace))));
}

}  // namespace aicf
