// scatter_add: rows added to the rows that an index names, as the gradient of an embedding is.
#include "kernels/common/rows.h"
#include "kernels/scatter/launch.h"
#include "kernels/scatter/sorted.h"
#include "op/registry.h"

namespace aicf {
namespace {

// (x, index, src) -> (y)
Status check_scatter_add(const OpDesc& op) {
  const TensorDesc &x = op.in("x"), &index = op.in("index"), &src = op.in("src");
  AICF_TRY(expect_float(op, "x", x));
  AICF_TRY(expect_rank(op, "x", x, 2));
  AICF_TRY(expect_dtype(op, "index", index, DType::I64));
  AICF_TRY(expect_rank(op, "index", index, 1));
  AICF_TRY(expect_tensor(op, "src", src, expected_tensor(x.dtype, {index.shape[0], x.shape[1]})));
  return expect_tensor(op, "y", op.outputs[0], x);
}

constexpr Prepare on_cpu = prepare_with<scatter_add_of, scatter_add_cpu>;
constexpr Prepare on_cuda = AICF_CUDA((prepare_with<scatter_add_of, scatter_add_cuda>));
constexpr Prepare sorted_on_cuda = AICF_CUDA((prepare_with<scatter_add_of, scatter_add_sorted>));

constexpr int64_t kFew = 4096;  // sources: sorting them takes longer than to look at each for each

Status supports_sorting(const OpDesc& op) {
  AICF_TRY(needs_dense(op));
  const ScatterAdd s = scatter_add_of(op);
  constexpr int64_t kMost = int64_t{1} << 31;
  if (s.sources < kMost && s.rows < kMost) return Status::ok();
  return Status::unsupported("rows and sources are counted in 31 bits");
}

Status has_many_sources(const OpDesc& op) {
  if (scatter_add_of(op).sources > kFew) return Status::ok();
  return Status::unsupported("it has " + std::to_string(kFew) + " sources at most");
}

constexpr KernelVariant preferred(KernelVariant variant, SupportFunction where) {
  variant.preferred = where;
  return variant;
}

constexpr KernelVariant kVariants[] = {
    preferred(skippable_cuda_row("scatter_add_sorted_cuda", "scatter_add", kSmAny, sorted_on_cuda,
                                 supports_sorting, scatter_add_sorted_workspace),
              has_many_sources),
    skippable_cuda_row("scatter_add_cuda", "scatter_add", kSmAny, on_cuda, needs_dense),
    cpu_row("scatter_add_cpu", "scatter_add", on_cpu, needs_dense, scatter_add_cpu_workspace),
};

}  // namespace

ScatterAdd scatter_add_of(const OpDesc& op) {
  const TensorDesc& x = op.in("x");
  return {x.dtype,
          x.shape[0],
          x.shape[1],
          op.in("index").shape[0],
          x.data,
          op.in("index").ptr<const int64_t>(),
          op.in("src").data,
          op.outputs[0].data};
}

size_t scatter_add_sorted_workspace(const OpDesc& op) {
  const ScatterAdd s = scatter_add_of(op);
  return SortMemory(nullptr, s.sources, s.columns, s.dtype).bytes;
}

static const Family family([](KernelRegistry& registry) {
  registry.add(OpSchema{
      38,
      "ScatterAdd",
      "scatter_add",
      "x, and src[i] added to its row index[i]; an index outside of x adds nothing",
      {{"x"}, {"index"}, {"src"}},
      {{"y"}},
      {},
      {{"y", "x"}},
      "added in the order of src, in f32 (f64 for f64), from many sources in sums of 256; each result "
      "rounded once",
      check_scatter_add});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
