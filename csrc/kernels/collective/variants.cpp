// Collectives: bytes that go from rank to rank. Their arithmetic, if any, is that of other launches.
#include "kernels/collective/launch.h"
#include "kernels/collective/params.h"
#include "kernels/common/rows.h"
#include "op/registry.h"

namespace aicf {
namespace {

Status check_all_gather(const OpDesc& op) {
  const int64_t ranks = op.attrs.get(kRanks);
  if (ranks < 1 || ranks > kMostRanks)
    return refuse(op, "ranks: expected 1 to ", kMostRanks, ", got ", ranks);
  if (op.attrs.get(kGroup).empty()) return refuse(op, "group: expected a name, got none");
  const TensorDesc& x = op.in("x");
  if (x.rank == kMaxRank)
    return refuse(op, "x: expected at most ", kMaxRank - 1, " dimensions, got ", x.str());
  std::vector<int64_t> shape = {ranks};
  shape.insert(shape.end(), x.shape, x.shape + x.rank);
  return expect_tensor(op, "y", op.out("y"), expected_tensor(x.dtype, shape));
}

Status check_all_gather_status(const OpDesc& op) {
  AICF_TRY(check_all_gather(op));
  AICF_TRY(expect_tensor(op, "status", op.in("status"), expected_tensor(DType::I64, {kStatusNumbers})));
  return expect_tensor(op, "statuses", op.out("statuses"),
                       expected_tensor(DType::I64, {op.attrs.get(kRanks), kStatusNumbers}));
}

}  // namespace

static const Family family([](KernelRegistry& registry) {
  registry.add(OpSchema{56,
                        "AllGather",
                        "all_gather",
                        "x of every rank of the group, in their order; it begins once `after` is there",
                        {{"x"}, many("after")},
                        {{"y"}},
                        {required(kGroup), required(kRanks)},
                        {},
                        "",
                        check_all_gather});
  registry.add(OpSchema{60,
                        "AllGatherStatus",
                        "all_gather_status",
                        "x and the status of every rank, as one exchange; where any of it has not come, no"
                        " number of `statuses` is 0",
                        {{"x"}, {"status"}, many("after")},
                        {{"y"}, {"statuses"}},
                        {required(kGroup), required(kRanks)},
                        {},
                        "",
                        check_all_gather_status});
  registry.add(cpu_row("all_gather_cpu", "all_gather", prepare_op<all_gather_cpu>));
  registry.add(
      cuda_row("all_gather_cuda", "all_gather", kSmAny, AICF_CUDA(prepare_all_gather_cuda), needs_dense));
  registry.add(cpu_row("all_gather_status_cpu", "all_gather_status", prepare_op<all_gather_status_cpu>));
  registry.add(cuda_row("all_gather_status_cuda", "all_gather_status", kSmAny,
                        AICF_CUDA(prepare_all_gather_status_cuda), needs_dense));
});

}  // namespace aicf
