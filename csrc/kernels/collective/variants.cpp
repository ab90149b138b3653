// Collectives: bytes that go from rank to rank, and means of numbers in them.
#include <algorithm>

#include "kernels/collective/launch.h"
#include "kernels/collective/params.h"
#include "kernels/common/rows.h"
#include "op/registry.h"

namespace aicf {
namespace {

Status check_group(const OpDesc& op) {
  const int64_t ranks = op.attrs.get(kRanks);
  if (ranks < 1 || ranks > kMostRanks)
    return refuse(op, "ranks: expected 1 to ", kMostRanks, ", got ", ranks);
  if (op.attrs.get(kGroup).empty()) return refuse(op, "group: expected a name, got none");
  return Status::ok();
}

Status check_all_gather(const OpDesc& op) {
  AICF_TRY(check_group(op));
  const int64_t ranks = op.attrs.get(kRanks);
  const TensorDesc& x = op.in("x");
  if (x.rank == kMaxRank)
    return refuse(op, "x: expected at most ", kMaxRank - 1, " dimensions, got ", x.str());
  std::vector<int64_t> shape = {ranks};
  shape.insert(shape.end(), x.shape, x.shape + x.rank);
  return expect_tensor(op, "y", op.out("y"), expected_tensor(x.dtype, shape));
}

Status check_all_to_all(const OpDesc& op) {
  AICF_TRY(check_group(op));
  const int64_t ranks = op.attrs.get(kRanks);
  const TensorDesc& x = op.in("x");
  if (x.rank == 0 || x.shape[0] != ranks)
    return refuse(op, "x: expected a row for each of ", ranks, " ranks, got ", x.str());
  return expect_tensor(op, "y", op.out("y"), expected_tensor(x.dtype, {x.shape, x.shape + x.rank}));
}

Status check_all_reduce(const OpDesc& op) {
  AICF_TRY(check_group(op));
  const TensorDesc& x = op.in("x");
  AICF_TRY(expect_float(op, "x", x));
  return expect_tensor(op, "y", op.out("y"),
                       expected_tensor(summed_in(x.dtype), {x.shape, x.shape + x.rank}));
}

template <Status (*check)(const OpDesc&)>
Status check_with_status(const OpDesc& op) {
  AICF_TRY(check(op));
  AICF_TRY(expect_tensor(op, "status", op.in("status"), expected_tensor(DType::I64, {kStatusNumbers})));
  return expect_tensor(op, "statuses", op.out("statuses"),
                       expected_tensor(DType::I64, {op.attrs.get(kRanks), kStatusNumbers}));
}

}  // namespace

size_t all_reduce_workspace(const OpDesc& op) {
  const int64_t ranks = op.attrs.get(kRanks);
  return ranks > 1 ? static_cast<size_t>(ranks) * std::min(op.in("x").bytes(), kTurn) : 0;
}

size_t all_to_all_workspace(const OpDesc& op) { return op.attrs.get(kRanks) > 1 ? op.in("x").bytes() : 0; }

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
                        check_with_status<check_all_gather>});
  registry.add(OpSchema{61,
                        "AllReduce",
                        "all_reduce",
                        "the mean of x over the ranks of the group, added up in their order; it begins once"
                        " `after` is there",
                        {{"x"}, many("after")},
                        {{"y"}},
                        {required(kGroup), required(kRanks)},
                        {},
                        "sums are f32, of f64 f64, and so is y",
                        check_all_reduce});
  registry.add(
      OpSchema{62,
               "AllReduceStatus",
               "all_reduce_status",
               "the mean of x, and the status of every rank, as one exchange; where any of it has not"
               " come, no number of `statuses` is 0",
               {{"x"}, {"status"}, many("after")},
               {{"y"}, {"statuses"}},
               {required(kGroup), required(kRanks)},
               {},
               "sums are f32, of f64 f64, and so is y",
               check_with_status<check_all_reduce>});
  registry.add(OpSchema{63,
                        "AllToAll",
                        "all_to_all",
                        "row i of x goes to rank i of the group; y has the row of every rank that is for this"
                        " one, in their order; it begins once `after` is there",
                        {{"x"}, many("after")},
                        {{"y"}},
                        {required(kGroup), required(kRanks)},
                        {},
                        "",
                        check_all_to_all});
  registry.add(cpu_row("all_gather_cpu", "all_gather", prepare_op<all_gather_cpu>));
  registry.add(
      cuda_row("all_gather_cuda", "all_gather", kSmAny, AICF_CUDA(prepare_all_gather_cuda), needs_dense));
  registry.add(cpu_row("all_gather_status_cpu", "all_gather_status", prepare_op<all_gather_status_cpu>));
  registry.add(cuda_row("all_gather_status_cuda", "all_gather_status", kSmAny,
                        AICF_CUDA(prepare_all_gather_status_cuda), needs_dense));
  registry.add(cpu_row("all_to_all_cpu", "all_to_all", prepare_op<all_to_all_cpu>));
  registry.add(cuda_row("all_to_all_cuda", "all_to_all", kSmAny, AICF_CUDA(prepare_all_to_all_cuda),
                        needs_dense, all_to_all_workspace));
  registry.add(
      cpu_row("all_reduce_cpu", "all_reduce", prepare_op<all_reduce_cpu>, needs_dense, all_reduce_workspace));
  registry.add(cuda_row("all_reduce_cuda", "all_reduce", kSmAny, AICF_CUDA(prepare_all_reduce_cuda),
                        needs_dense, all_reduce_workspace));
  registry.add(cpu_row("all_reduce_status_cpu", "all_reduce_status", prepare_op<all_reduce_status_cpu>,
                       needs_dense, all_reduce_workspace));
  registry.add(cuda_row("all_reduce_status_cuda", "all_reduce_status", kSmAny,
                        AICF_CUDA(prepare_all_reduce_status_cuda), needs_dense, all_reduce_workspace));
});

}  // namespace aicf
