// scatter_add: rows added to the rows that an index names, as the gradient of an embedding is. scatter_rows:
// rows in their place, or reduced with them.
#include "kernels/common/rows.h"
#include "kernels/scatter/launch.h"
#include "kernels/scatter/sorted.h"
#include "op/registry.h"

namespace aicf {
namespace {

Scatters scatters_of(const OpDesc& op) {
  return std::string(op.schema->name) == "scatter_add" ? Scatters::Sum : op.attrs.get(kKind);
}

// (x, index, src) -> (y)
Status check_scatter(const OpDesc& op) {
  const TensorDesc &x = op.in("x"), &index = op.in("index"), &src = op.in("src");
  if (scatters_of(op) != Scatters::Last) AICF_TRY(expect_float(op, "x", x));
  AICF_TRY(expect_rank(op, "x", x, 2));
  AICF_TRY(expect_dtype(op, "index", index, DType::I64));
  AICF_TRY(expect_rank(op, "index", index, 1));
  AICF_TRY(expect_tensor(op, "src", src, expected_tensor(x.dtype, {index.shape[0], x.shape[1]})));
  return expect_tensor(op, "y", op.outputs[0], x);
}

constexpr Prepare on_cpu = prepare_with<scatter_of, scatter_cpu>;
constexpr Prepare last_on_cpu = prepare_with<scatter_of, scatter_last_cpu>;
constexpr Prepare on_cuda = AICF_CUDA((prepare_with<scatter_of, scatter_cuda>));
constexpr Prepare sorted_on_cuda = AICF_CUDA((prepare_with<scatter_of, scatter_sorted>));
constexpr Prepare last_on_cuda = AICF_CUDA((prepare_with<scatter_of, scatter_last_cuda>));

constexpr int64_t kFew = 4096;  // sources: sorting them takes longer than to look at each for each
constexpr int64_t kMost = int64_t{1} << 31;

Status counts_in_31_bits(const OpDesc& op) {
  const Scatter s = scatter_of(op);
  if (s.sources < kMost && s.rows < kMost) return Status::ok();
  return Status::unsupported("rows and sources are counted in 31 bits");
}

Status supports_last(const OpDesc& op) {
  AICF_TRY(needs_dense(op));
  return scatters_of(op) == Scatters::Last ? counts_in_31_bits(op) : decline("needs kind last");
}

Status supports_reductions(const OpDesc& op) {
  AICF_TRY(needs_dense(op));
  return scatters_of(op) == Scatters::Last ? decline("needs another kind than last") : Status::ok();
}

Status supports_sorting(const OpDesc& op) {
  AICF_TRY(supports_reductions(op));
  return counts_in_31_bits(op);
}

Status has_many_sources(const OpDesc& op) {
  if (scatter_of(op).sources > kFew) return Status::ok();
  return Status::unsupported("it has " + std::to_string(kFew) + " sources at most");
}

constexpr KernelVariant preferred(KernelVariant variant, SupportFunction where) {
  variant.preferred = where;
  return variant;
}

constexpr KernelVariant kVariants[] = {
    preferred(skippable_cuda_row("scatter_add_sorted_cuda", "scatter_add", kSmAny, sorted_on_cuda,
                                 supports_sorting, scatter_sorted_workspace),
              has_many_sources),
    skippable_cuda_row("scatter_add_cuda", "scatter_add", kSmAny, on_cuda, needs_dense),
    cpu_row("scatter_add_cpu", "scatter_add", on_cpu, needs_dense, scatter_cpu_workspace),
    skippable_cuda_row("scatter_last_cuda", "scatter_rows", kSmAny, last_on_cuda, supports_last,
                       scatter_last_workspace),
    cpu_row("scatter_last_cpu", "scatter_rows", last_on_cpu, supports_last, scatter_cpu_workspace),
    preferred(skippable_cuda_row("scatter_rows_sorted_cuda", "scatter_rows", kSmAny, sorted_on_cuda,
                                 supports_sorting, scatter_sorted_workspace),
              has_many_sources),
    skippable_cuda_row("scatter_rows_cuda", "scatter_rows", kSmAny, on_cuda, supports_reductions),
    cpu_row("scatter_rows_cpu", "scatter_rows", on_cpu, supports_reductions, scatter_cpu_workspace),
};

}  // namespace

Scatter scatter_of(const OpDesc& op) {
  const TensorDesc& x = op.in("x");
  return {x.dtype,
          scatters_of(op),
          op.attrs.get(kIncludeSelf),
          x.shape[0],
          x.shape[1],
          op.in("index").shape[0],
          x.data,
          op.in("index").ptr<const int64_t>(),
          op.in("src").data,
          op.outputs[0].data};
}

size_t scatter_sorted_workspace(const OpDesc& op) {
  const Scatter s = scatter_of(op);
  return SortedMemory(nullptr, s.sources, s.columns, s.dtype).parts.used;
}

size_t scatter_last_workspace(const OpDesc& op) {
  return static_cast<size_t>(scatter_of(op).rows) * sizeof(int);
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
      check_scatter});
  registry.add(OpSchema{
      52,
      "ScatterRows",
      "scatter_rows",
      "x, its row index[i] replaced by src[i] (the last of several), or reduced with it by kind; an index "
      "outside of x does nothing",
      {{"x"}, {"index"}, {"src"}},
      {{"y"}},
      {optional(kKind), optional(kIncludeSelf)},
      {{"y", "x"}},
      "products in the order of src, in f32 (f64 for f64), from many sources of 256 each; each result "
      "rounded "
      "once",
      check_scatter});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
