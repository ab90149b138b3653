// argsort: the order of the elements of each row.
#include "kernels/common/rows.h"
#include "kernels/sort/keys.h"
#include "kernels/sort/launch.h"
#include "kernels/sort/memory.h"
#include "op/registry.h"

namespace aicf {
namespace {

// (x) -> (index): `count` instead of the last dimension.
Status check_argsort(const OpDesc& op) {
  const TensorDesc& x = op.in("x");
  if (x.rank < 1) return refuse(op, "x: expected rank 1 or more, got ", x.str());
  const int64_t n = x.shape[x.rank - 1], count = op.attrs.get(kCount);
  if (count < 0 || count > n) return refuse(op, "count: expected 0 to ", n, ", got ", count);
  if (n >= int64_t{1} << 31) return refuse(op, "x: expected rows of less than 2^31 elements, got ", x.str());
  const int64_t first = op.attrs.get(kFirst);
  if (first < 0 || first > n - count) return refuse(op, "first: expected 0 to ", n - count, ", got ", first);
  TensorDesc index = x;
  index.dtype = DType::I64;
  index.shape[x.rank - 1] = count;
  return expect_tensor(op, "index", op.outputs[0], index);
}

constexpr int64_t kOfWarp = 128, kOfBlock = 8192;  // elements of a row

template <int64_t most>
Status supports_rows(const OpDesc& op) {
  AICF_TRY(needs_dense(op));
  const int64_t n = argsort_of(op).n;
  return n <= most ? Status::ok() : decline("needs rows of ", most, " elements at most, got ", n);
}

Status supports_few(const OpDesc& op) {
  AICF_TRY(supports_rows<kOfBlock>(op));
  const Argsort s = argsort_of(op);
  if (s.count == 1 || s.first + s.count <= kMostSelected) return Status::ok();
  return decline("needs a count of 1, or first + count of ", kMostSelected, " at most, got ", s.first, " + ",
                 s.count);
}

// A row of which more than half is in front of the last place wanted is sorted.
Status prefers_few(const OpDesc& op) {
  const Argsort s = argsort_of(op);
  if (s.count == 1 || 2 * (s.first + s.count) <= s.n) return Status::ok();
  return decline("needs rows of ", 2 * (s.first + s.count), " elements or more, got ", s.n);
}

constexpr KernelVariant kVariants[] = {
    skippable_cuda_row("argsort_warps_cuda", "argsort", kSmAny,
                       AICF_CUDA((prepare_with<argsort_of, argsort_warps_cuda>)), supports_rows<kOfWarp>),
    preferring(skippable_cuda_row("argsort_select_cuda", "argsort", kSmAny,
                                  AICF_CUDA((prepare_with<argsort_of, argsort_select_cuda>)), supports_few),
               prefers_few),
    skippable_cuda_row("argsort_blocks_cuda", "argsort", kSmAny,
                       AICF_CUDA((prepare_with<argsort_of, argsort_blocks_cuda>)), supports_rows<kOfBlock>),
    skippable_cuda_row("argsort_passes_cuda", "argsort", kSmAny,
                       AICF_CUDA((prepare_with<argsort_of, argsort_passes_cuda>)), needs_dense,
                       argsort_passes_workspace),
    cpu_row("argsort_cpu", "argsort", prepare_with<argsort_of, argsort_cpu>),
};

}  // namespace

size_t argsort_passes_workspace(const OpDesc& op) {
  const Argsort s = argsort_of(op);
  WorkspaceParts parts(nullptr);
  const Status status = with_order(s.dtype, [&](auto tag) {
    using Order = typename decltype(tag)::type;
    SortMemory<typename Order::Key>(parts, s.rows, s.n, Order::kBits);
    return Status::ok();
  });
  return status.is_ok() ? parts.used : 0;
}

static const Family family([](KernelRegistry& registry) {
  registry.add(
      OpSchema{50,
               "Argsort",
               "argsort",
               "the places of count elements of each sorted row, from first on; equal ones keep their order",
               {{"x"}},
               {{"index"}},
               {required(kCount), optional(kDescending), optional(kFirst)},
               {},
               "NaN is the largest, and zeros of either sign are equal",
               check_argsort});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
