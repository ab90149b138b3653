// scatter_add: rows added to the rows that an index names, as the gradient of an embedding is. scatter_rows:
// rows in their place, or reduced with them.
#include <algorithm>

#include "kernels/common/rows.h"
#include "kernels/scatter/launch.h"
#include "kernels/scatter/sorted.h"
#include "op/registry.h"

namespace aicf {
namespace {

constexpr int64_t kMost = int64_t{1} << 31;

Scatters kind_of(const OpDesc& op) {
  return std::string(op.schema->name) == "scatter_add" ? Scatters::Sum : op.attrs.get(kKind);
}

// Which rows of src the sources are; null if they are all, in their order.
const TensorDesc* places_of(const OpDesc& op) {
  const bool may = std::string(op.schema->name) != "scatter_rows";
  return may && op.has_in("at") ? &op.in("at") : nullptr;
}

// An index and what may stand beside it: i64, or the i32 that sort_rows has made of both.
Status check_places(const OpDesc& op, const TensorDesc& index, const std::string& name) {
  if (!places_of(op) || index.dtype != DType::I32)
    AICF_TRY(expect_dtype(op, name.c_str(), index, DType::I64));
  AICF_TRY(expect_rank(op, name.c_str(), index, 1));
  if (const TensorDesc* at = places_of(op))
    return expect_tensor(op, "at", *at, expected_tensor(index.dtype, {index.shape[0]}));
  return Status::ok();
}

// (x, index, src) -> (x'), of a scatter_add as many of each as there are.
Status check_scatter(const OpDesc& op) {
  const Tensors xs = op.ins("x"), indices = op.ins("index"), sources = op.ins("src");
  if (xs.empty()) return refuse(op, "x: expected one tensor or more, got none");
  if (indices.size() != xs.size() || sources.size() != xs.size())
    return refuse(op, "expected an index and a src for each of ", xs.size(), " x, got ", indices.size(),
                  " and ", sources.size());
  const bool has_at = places_of(op) != nullptr;
  if (has_at && xs.size() != 1) return refuse(op, "at: expected one x, got ", xs.size());
  for (size_t i = 0; i < xs.size(); ++i) {
    const auto name = [&](size_t group) { return op.in_name(group * xs.size() + i); };
    const TensorDesc &x = xs[i], &index = indices[i], &src = sources[i];
    if (kind_of(op) != Scatters::Last) AICF_TRY(expect_float(op, name(0).c_str(), x));
    AICF_TRY(expect_dtype(op, name(0).c_str(), x, xs[0].dtype));
    AICF_TRY(expect_rank(op, name(0).c_str(), x, 2));
    AICF_TRY(check_places(op, index, name(1)));
    const int64_t rows = has_at && src.rank == 2 ? src.shape[0] : index.shape[0];
    AICF_TRY(expect_tensor(op, name(2).c_str(), src, expected_tensor(x.dtype, {rows, x.shape[1]})));
    AICF_TRY(expect_tensor(op, op.out_name(i).c_str(), op.outputs[i], x));
  }
  return Status::ok();
}

// (index, at?) -> (keys, places)
Status check_sort_rows(const OpDesc& op) {
  const TensorDesc& index = op.in("index");
  const int64_t rows = op.attrs.get(kRows), source_rows = op.attrs.get(kSourceRows);
  AICF_TRY(check_places(op, index, "index"));
  AICF_TRY(expect_dtype(op, "index", index, DType::I64));
  if (rows < 0 || rows >= kMost) return refuse(op, "rows: expected 0 to 2^31 - 1, got ", rows);
  if (source_rows < 0 || source_rows >= kMost)
    return refuse(op, "source_rows: expected 0 to 2^31 - 1, got ", source_rows);
  if (index.shape[0] >= kMost)
    return refuse(op, "index: expected less than 2^31 elements, got ", index.str());
  for (size_t i = 0; i < 2; ++i)
    AICF_TRY(expect_tensor(op, op.out_name(i).c_str(), op.outputs[i],
                           expected_tensor(DType::I32, {index.shape[0]})));
  return Status::ok();
}

constexpr Prepare on_cpu = prepare_with<scatters_of, scatter_cpu>;
constexpr Prepare sort_on_cpu = prepare_with<sort_rows_of, sort_rows_cpu>;
constexpr Prepare sort_on_cuda = AICF_CUDA((prepare_with<sort_rows_of, sort_rows_cuda>));
constexpr Prepare last_on_cpu = prepare_with<scatter_of, scatter_last_cpu>;
constexpr Prepare on_cuda = AICF_CUDA((prepare_with<scatters_of, scatter_cuda>));
constexpr Prepare sorted_on_cuda = AICF_CUDA((prepare_with<scatter_of, scatter_sorted>));
constexpr Prepare last_on_cuda = AICF_CUDA((prepare_with<scatter_of, scatter_last_cuda>));

int64_t most_sources(const OpDesc& op) {
  int64_t most = 0;
  for (const TensorDesc& index : op.ins("index")) most = std::max(most, index.shape[0]);
  return most;
}

Status counts_in_31_bits(const OpDesc& op) {
  const Scatter s = scatter_of(op);
  if (std::max({s.sources, s.rows, s.src_rows}) < kMost) return Status::ok();
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
  if (most_sources(op) > kFewSources || places_of(op)) return Status::ok();
  return Status::unsupported("it has " + std::to_string(kFewSources) + " sources at most");
}

Status supports_few_sources(const OpDesc& op) {
  AICF_TRY(supports_reductions(op));
  if (places_of(op)) return decline("needs all rows of src in their order");
  if (most_sources(op) <= kFewSources) return Status::ok();
  return decline("needs ", kFewSources, " sources or fewer, got ", most_sources(op));
}

constexpr KernelVariant kVariants[] = {
    preferring(skippable_cuda_row("scatter_add_sorted_cuda", "scatter_add", kSmAny, sorted_on_cuda,
                                  supports_sorting, scatter_sorted_workspace),
               has_many_sources),
    skippable_cuda_row("scatter_add_cuda", "scatter_add", kSmAny, on_cuda, supports_few_sources),
    cpu_row("scatter_add_cpu", "scatter_add", on_cpu, supports_reductions, scatter_cpu_workspace),
    skippable_cuda_row("scatter_last_cuda", "scatter_rows", kSmAny, last_on_cuda, supports_last,
                       scatter_last_workspace),
    cpu_row("scatter_last_cpu", "scatter_rows", last_on_cpu, supports_last, scatter_cpu_workspace),
    preferring(skippable_cuda_row("scatter_rows_sorted_cuda", "scatter_rows", kSmAny, sorted_on_cuda,
                                  supports_sorting, scatter_sorted_workspace),
               has_many_sources),
    skippable_cuda_row("scatter_rows_cuda", "scatter_rows", kSmAny, on_cuda, supports_few_sources),
    cpu_row("scatter_rows_cpu", "scatter_rows", on_cpu, supports_reductions, scatter_cpu_workspace),
    skippable_cuda_row("sort_rows_cuda", "sort_rows", kSmAny, sort_on_cuda, needs_element_alignment,
                       sort_rows_cuda_workspace),
    cpu_row("sort_rows_cpu", "sort_rows", sort_on_cpu, needs_element_alignment, sort_rows_cpu_workspace),
};

}  // namespace

std::vector<Scatter> scatters_of(const OpDesc& op) {
  const Tensors xs = op.ins("x"), indices = op.ins("index"), sources = op.ins("src");
  std::vector<Scatter> all;
  const TensorDesc* at = places_of(op);
  for (size_t i = 0; i < xs.size(); ++i)
    all.push_back({xs[i].dtype, kind_of(op), op.attrs.get(kIncludeSelf), xs[i].shape[0], xs[i].shape[1],
                   indices[i].shape[0], sources[i].shape[0], sources[i].strides[0], xs[i].data,
                   Places(indices[i]), at ? Places(*at) : Places(), at != nullptr, sources[i].data,
                   op.outputs[i].data});
  return all;
}

Scatter scatter_of(const OpDesc& op) { return scatters_of(op)[0]; }

SortRows sort_rows_of(const OpDesc& op) {
  const TensorDesc& index = op.in("index");
  const TensorDesc* at = places_of(op);
  return {op.attrs.get(kRows),
          op.attrs.get(kSourceRows),
          index.shape[0],
          Places(index),
          at ? Places(*at) : Places(),
          at != nullptr,
          op.outputs[0].ptr<int32_t>(),
          op.outputs[1].ptr<int32_t>()};
}

size_t sort_rows_cuda_workspace(const OpDesc& op) {
  const SortRows s = sort_rows_of(op);
  return sort_workspace(s.rows, s.sources);
}

size_t scatter_sorted_workspace(const OpDesc& op) {
  const Scatter s = scatter_of(op);
  return SortedMemory(nullptr, s).parts.used;
}

size_t scatter_last_workspace(const OpDesc& op) {
  return static_cast<size_t>(scatter_of(op).rows) * sizeof(int);
}

static const Family family([](KernelRegistry& registry) {
  registry.add(OpSchema{
      38,
      "ScatterAdd",
      "scatter_add",
      "of each: x, and src[i], or src[at[i]] of one x, added to its row index[i]; an index outside of x adds "
      "nothing, a place outside of src is its nearest row; of i32 both are as sort_rows gives them",
      {many("x"), strided(many("index")), strided(many("src")), strided(maybe("at"))},
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
  registry.add(OpSchema{
      58,
      "SortRows",
      "sort_rows",
      "of the sources of a scatter, in the order of their rows, their rows (rows for a source that goes "
      "nowhere) and "
      "their rows of src, of which there are source_rows: i, or at[i]; those of one row keep their order",
      {strided("index"), strided(maybe("at"))},
      {{"keys"}, {"places"}},
      {required(kRows), required(kSourceRows)},
      {},
      "a place outside of src is its nearest row",
      check_sort_rows});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
