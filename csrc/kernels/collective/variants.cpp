// Collectives: bytes that go from rank to rank. Their arithmetic, if any, is that of other launches.
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
  return op.attrs.get(kGroup).empty() ? refuse(op, "group: expected a name, got none") : Status::ok();
}

Status check_all_gather(const OpDesc& op) {
  AICF_TRY(check_group(op));
  const TensorDesc& x = op.in("x");
  if (x.rank == kMaxRank)
    return refuse(op, "x: expected at most ", kMaxRank - 1, " dimensions, got ", x.str());
  std::vector<int64_t> shape = {op.attrs.get(kRanks)};
  shape.insert(shape.end(), x.shape, x.shape + x.rank);
  return expect_tensor(op, "y", op.out("y"), expected_tensor(x.dtype, shape));
}

Status check_all_to_all(const OpDesc& op) {
  AICF_TRY(check_group(op));
  const TensorDesc& x = op.in("x");
  if (x.rank == 0 || x.shape[0] != op.attrs.get(kRanks))
    return refuse(op, "x: expected a row for each of ", op.attrs.get(kRanks), " ranks, got ", x.str());
  return expect_tensor(op, "y", op.out("y"), x);
}

constexpr KernelVariant kVariants[] = {
    cpu_row("all_gather_cpu", "all_gather", prepare_op<all_gather_cpu>),
    cpu_row("all_to_all_cpu", "all_to_all", prepare_op<all_to_all_cpu>),
};

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
  registry.add(
      OpSchema{57,
               "AllToAll",
               "all_to_all",
               "row r is what rank r of the group has in the row of this rank; it begins once `after` "
               "is there",
               {{"x"}, many("after")},
               {{"y"}},
               {required(kGroup), required(kRanks)},
               {},
               "",
               check_all_to_all});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
