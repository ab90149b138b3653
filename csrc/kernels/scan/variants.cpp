// scan: each element joined with those in front of it along a dimension.
#include "kernels/common/rows.h"
#include "kernels/scan/launch.h"
#include "op/registry.h"

namespace aicf {
namespace {

// (x, factor?) -> (y): y is of x's type, or of i64 where it says places.
Status check_scan(const OpDesc& op) {
  const TensorDesc& x = op.in("x");
  const Scans kind = op.attrs.get(kKind);
  const int64_t dim = op.attrs.get(kDim);
  if (dim < 0 || dim >= x.rank) return refuse(op, "dim: expected a dimension of ", x.str(), ", got ", dim);
  if (kind == Scans::LogAddExp || takes_factor(kind)) AICF_TRY(expect_float(op, "x", x));
  if (x.dtype == DType::I1) return refuse(op, "x: expected numbers, got ", x.str());
  if (op.has_in("factor") != takes_factor(kind))
    return refuse(op,
                  "factor: expected one tensor beside kinds linear, exp_linear and segment_sum, and none "
                  "beside others");
  if (op.has_in("factor")) AICF_TRY(expect_tensor(op, "factor", op.in("factor"), x));
  TensorDesc y = x;
  if (gives_places(kind)) y.dtype = DType::I64;
  return expect_tensor(op, "y", op.outputs[0], y);
}

constexpr KernelVariant kVariants[] = {
    skippable_cuda_row("scan_cuda", "scan", kSmAny, AICF_CUDA((prepare_with<scan_of, scan_cuda>)),
                       needs_dense, scan_cuda_workspace),
    cpu_row("scan_cpu", "scan", prepare_with<scan_of, scan_cpu>),
};

}  // namespace

size_t scan_cuda_workspace(const OpDesc& op) {
  constexpr int64_t kState = 16;  // bytes, of the largest
  const Scan s = scan_of(op);
  const int64_t chunks = ScanChunks(s).chunks;
  return chunks == 1 ? 0 : static_cast<size_t>(s.outer * s.inner * chunks * kState);
}

static const Family family([](KernelRegistry& registry) {
  registry.add(OpSchema{
      51,
      "Scan",
      "scan",
      "x joined with all in front of it along dim: sums, products, log-sums, places of extremes, "
      "factor y + x, exp(factor) y + x, or sums since a factor was 0",
      {{"x"}, maybe("factor")},
      {{"y"}},
      {required(kDim), required(kKind), optional(kReverse)},
      {},
      "on the CPU in f64; on CUDA in f32 (f64 for f64), in an order that follows from the shape; each result "
      "rounded once",
      check_scan});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
