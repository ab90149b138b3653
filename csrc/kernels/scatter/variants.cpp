// scatter_add: rows added to the rows that an index names, as the gradient of an embedding is. scatter_rows:
// rows in their place, or reduced with them.
#include <algorithm>

#include "kernels/common/rows.h"
#include "kernels/scatter/launch.h"
#include "kernels/scatter/sorted.h"
#include "op/registry.h"

namespace aicf {
namespace {

Scatters kind_of(const OpDesc& op) {
  return std::string(op.schema->name) == "scatter_add" ? Scatters::Sum : op.attrs.get(kKind);
}

// (x, index, src) -> (x'), of a scatter_add as many of each as there are.
Status check_scatter(const OpDesc& op) {
  const Tensors xs = op.ins("x"), indices = op.ins("index"), sources = op.ins("src");
  if (xs.empty()) return refuse(op, "x: expected one tensor or more, got none");
  if (indices.size() != xs.size() || sources.size() != xs.size())
    return refuse(op, "expected an index and a src for each of ", xs.size(), " x, got ", indices.size(),
                  " and ", sources.size());
  for (size_t i = 0; i < xs.size(); ++i) {
    const auto name = [&](size_t group) { return op.in_name(group * xs.size() + i); };
    const TensorDesc &x = xs[i], &index = indices[i], &src = sources[i];
    if (kind_of(op) != Scatters::Last) AICF_TRY(expect_float(op, name(0).c_str(), x));
    AICF_TRY(expect_dtype(op, name(0).c_str(), x, xs[0].dtype));
    AICF_TRY(expect_rank(op, name(0).c_str(), x, 2));
    AICF_TRY(expect_dtype(op, name(1).c_str(), index, DType::I64));
    AICF_TRY(expect_rank(op, name(1).c_str(), index, 1));
    AICF_TRY(expect_tensor(op, name(2).c_str(), src, expected_tensor(x.dtype, {index.shape[0], x.shape[1]})));
    AICF_TRY(expect_tensor(op, op.out_name(i).c_str(), op.outputs[i], x));
  }
  return Status::ok();
}

constexpr Prepare on_cpu = prepare_with<scatters_of, scatter_cpu>;
constexpr Prepare last_on_cpu = prepare_with<scatter_of, scatter_last_cpu>;
constexpr Prepare on_cuda = AICF_CUDA((prepare_with<scatters_of, scatter_cuda>));
constexpr Prepare sorted_on_cuda = AICF_CUDA((prepare_with<scatter_of, scatter_sorted>));
constexpr Prepare last_on_cuda = AICF_CUDA((prepare_with<scatter_of, scatter_last_cuda>));

constexpr int64_t kMost = int64_t{1} << 31;

int64_t most_sources(const OpDesc& op) {
  int64_t most = 0;
  for (const TensorDesc& index : op.ins("index")) most = std::max(most, index.shape[0]);
  return most;
}

Status counts_in_31_bits(const OpDesc& op) {
  const Scatter s = scatter_of(op);
  if (s.sources < kMost && s.rows < kMost) return Status::ok();
  return Status::unsupported("rows and sources are counted in 31 bits");
}

Status supports_last(const OpDesc& op) {
  AICF_TRY(needs_dense(op));
  return kind_of(op) == Scatters::Last ? counts_in_31_bits(op) : decline("needs kind last");
}

// Rows of src without gaps, at any distance.
Status supports_reductions(const OpDesc& op) {
  for (const TensorDesc& src : op.ins("src"))
    if (src.numel() != 0 && src.shape[1] != 1 && src.strides[1] != 1)
      return decline("needs the elements of a row of src next to each other, got strides ",
                     src.strides_str());
  if (kind_of(op) == Scatters::Last) return decline("needs another kind than last");
  return needs_element_alignment(op);
}

Status supports_sorting(const OpDesc& op) {
  AICF_TRY(supports_reductions(op));
  if (op.outputs.size() != 1) return decline("sorts one index");
  return counts_in_31_bits(op);
}

Status has_many_sources(const OpDesc& op) {
  if (most_sources(op) > kFewSources) return Status::ok();
  return Status::unsupported("it has " + std::to_string(kFewSources) + " sources at most");
}

Status supports_few_sources(const OpDesc& op) {
  AICF_TRY(supports_reductions(op));
  if (most_sources(op) <= kFewSources) return Status::ok();
  return decline("needs ", kFewSources, " sources or fewer, got ", most_sources(op));
}

constexpr KernelVariant preferred(KernelVariant variant, SupportFunction where) {
  variant.preferred = where;
  return variant;
}

constexpr KernelVariant kVariants[] = {
    preferred(skippable_cuda_row("scatter_add_sorted_cuda", "scatter_add", kSmAny, sorted_on_cuda,
                                 supports_sorting, scatter_sorted_workspace),
              has_many_sources),
    skippable_cuda_row("scatter_add_cuda", "scatter_add", kSmAny, on_cuda, supports_few_sources),
    cpu_row("scatter_add_cpu", "scatter_add", on_cpu, supports_reductions, scatter_cpu_workspace),
    skippable_cuda_row("scatter_last_cuda", "scatter_rows", kSmAny, last_on_cuda, supports_last,
                       scatter_last_workspace),
    cpu_row("scatter_last_cpu", "scatter_rows", last_on_cpu, supports_last, scatter_cpu_workspace),
    preferred(skippable_cuda_row("scatter_rows_sorted_cuda", "scatter_rows", kSmAny, sorted_on_cuda,
                                 supports_sorting, scatter_sorted_workspace),
              has_many_sources),
    skippable_cuda_row("scatter_rows_cuda", "scatter_rows", kSmAny, on_cuda, supports_few_sources),
    cpu_row("scatter_rows_cpu", "scatter_rows", on_cpu, supports_reductions, scatter_cpu_workspace),
};

}  // namespace

std::vector<Scatter> scatters_of(const OpDesc& op) {
  const Tensors xs = op.ins("x"), indices = op.ins("index"), sources = op.ins("src");
  std::vector<Scatter> all;
  for (size_t i = 0; i < xs.size(); ++i)
    all.push_back({xs[i].dtype, kind_of(op), op.attrs.get(kIncludeSelf), xs[i].shape[0], xs[i].shape[1],
                   indices[i].shape[0], indices[i].strides[0], sources[i].strides[0], xs[i].data,
                   indices[i].ptr<const int64_t>(), sources[i].data, op.outputs[i].data});
  return all;
}

Scatter scatter_of(const OpDesc& op) { return scatters_of(op)[0]; }

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
      "of each: x, and src[i] added to its row index[i]; an index outside of x adds nothing",
      {many("x"), strided(many("index")), strided(many("src"))},
      {many("x")},
      {},
      {{"x", "x"}},
      "added in the order of src, in f32 (f64 for f64), from many sources in sums of 256; each result "
      "rounded once",
      check_scatter});
  registry.add(OpSchema{
      52,
      "ScatterRows",
      "scatter_rows",
      "x, its row index[i] replaced by src[i] (the last of several), or reduced with it by kind; an index "
      "outside of x does nothing",
      {{"x"}, strided("index"), strided("src")},
      {{"x"}},
      {optional(kKind), optional(kIncludeSelf)},
      {{"x", "x"}},
      "products in the order of src, in f32 (f64 for f64), from many sources of 256 each; each result "
      "rounded "
      "once",
      check_scatter});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
