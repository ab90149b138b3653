// map, multi_tensor_map, rowwise, multi_tensor_rowwise, colwise, together, chain: kernels that the compiler
// writes from bodies of scalar operations. Their schemas alone: the code of a launch comes with it
// (runtime/code.h).
#include "kernels/common/schema_checks.h"
#include "kernels/generated/attrs.h"
#include "kernels/generated/back_to_back.h"
#include "op/registry.h"

namespace aicf {
namespace {

const Attr<std::vector<int64_t>> kShape{"shape", std::nullopt};
constexpr Attr<int64_t> kReduced{"reduced", 0};
const Attr<int64_t> kSegments{"segments", std::nullopt};
const Attr<std::string> kMembers{"members", std::nullopt};

// Where the dimensions stand that a kernel reduces.
enum class Reduced { None, Last, First };

std::string text(const std::vector<int64_t>& shape) {
  std::string list;
  for (const int64_t size : shape) list += (list.empty() ? "" : ", ") + std::to_string(size);
  return "[" + list + "]";
}

bool has_shape(const TensorDesc& t, const std::vector<int64_t>& shape) {
  return std::vector<int64_t>(t.shape, t.shape + t.rank) == shape;
}

Status check_domain(const OpDesc& op, const std::vector<int64_t>& domain) {
  if (domain.size() > static_cast<size_t>(kMaxRank))
    return refuse(op, "shape: expected ", kMaxRank, " dimensions or fewer, got ", text(domain));
  for (const int64_t size : domain)
    if (size < 0) return refuse(op, "shape: expected sizes of 0 or more, got ", text(domain));
  return Status::ok();
}

// (x..., table...) -> (y...): each x of the shape of the domain, tables of any; each y of that shape or,
// where the kernel reduces, of what is left of it; sums over what rows keep have the shape of a row.
template <Reduced where>
Status check_generated(const OpDesc& op) {
  const std::vector<int64_t>& domain = op.attrs.get(kShape);
  AICF_TRY(check_domain(op, domain));
  const int64_t rank = static_cast<int64_t>(domain.size()), reduced = op.attrs.get(kReduced);
  if (where == Reduced::None ? reduced != 0 : reduced < 1 || reduced > rank)
    return refuse(op, "reduced: expected ",
                  where == Reduced::None ? "0" : "1 or more, and no more dimensions than shape has", ", got ",
                  reduced);
  const Tensors given = op.ins("x"), results = op.outs("y");
  for (size_t i = 0; i < given.size(); ++i)
    if (!has_shape(given[i], domain))
      return refuse(op, op.in_name(i), ": expected shape ", text(domain), ", got ", given[i].str());
  if (results.empty()) return refuse(op, "y: expected one tensor or more, got none");
  const std::vector<int64_t> kept = where == Reduced::First
                                        ? std::vector<int64_t>(domain.begin() + reduced, domain.end())
                                        : std::vector<int64_t>(domain.begin(), domain.end() - reduced);
  const std::vector<int64_t> row(domain.end() - (where == Reduced::Last ? reduced : 0), domain.end());
  for (size_t i = 0; i < results.size(); ++i) {
    if (has_shape(results[i], domain) || has_shape(results[i], kept)) continue;
    if (where == Reduced::Last && has_shape(results[i], row)) continue;
    return refuse(op, op.out_name(i), ": expected shape ", text(domain),
                  where == Reduced::None ? "" : " or " + text(kept),
                  where == Reduced::Last ? " or " + text(row) : "", ", got ", results[i].str());
  }
  return Status::ok();
}

// As many tensors for each segment, of the same types in the same places.
Status check_segments(const OpDesc& op, const char* name, const Tensors& tensors, int64_t segments) {
  const size_t count = tensors.size() / static_cast<size_t>(segments);
  if (count * static_cast<size_t>(segments) != tensors.size())
    return refuse(op, name, ": expected as many tensors for each of ", segments, " segments, got ",
                  tensors.size());
  for (size_t i = count; i < tensors.size(); ++i)
    if (tensors[i].dtype != tensors[i % count].dtype)
      return refuse(op, name, "[", i, "]: expected ", dtype_name(tensors[i % count].dtype),
                    " as in the first segment, got ", tensors[i].str());
  return Status::ok();
}

// (x...) -> (y...): the tensors of the first segment, then those of the second; all of a segment of one
// shape, or its results of none where the kernel reduces.
template <Reduced where>
Status check_each(const OpDesc& op) {
  const int64_t segments = op.attrs.get(kSegments);
  if (segments < 1) return refuse(op, "segments: expected 1 or more, got ", segments);
  const Tensors given = op.ins("x"), results = op.outs("y");
  AICF_TRY(check_segments(op, "x", given, segments));
  AICF_TRY(check_segments(op, "y", results, segments));
  if (results.empty()) return refuse(op, "y: expected one tensor or more for each segment, got none");
  const bool reduces = where != Reduced::None;
  if (reduces && given.empty())
    return refuse(op, "x: expected one tensor or more for each segment, got none");
  const size_t read = given.size() / static_cast<size_t>(segments);
  const size_t written = results.size() / static_cast<size_t>(segments);
  const auto expect_shape = [&](const std::string& name, const TensorDesc& got, size_t segment) {
    const TensorDesc& first = reduces ? given[segment * read] : results[segment * written];
    return got.same_shape(first) ? Status::ok()
                                 : refuse(op, name, ": expected the shape of ", first.str(), " in segment ",
                                          segment, ", got ", got.str());
  };
  for (size_t i = 0; i < given.size(); ++i) AICF_TRY(expect_shape(op.in_name(i), given[i], i / read));
  for (size_t i = 0; i < results.size(); ++i) {
    if (!reduces)
      AICF_TRY(expect_shape(op.out_name(i), results[i], i / written));
    else if (results[i].rank != 0)
      return refuse(op, op.out_name(i), ": expected a single number, got ", results[i].str());
  }
  return Status::ok();
}

// Which tensors belong to which member, and what they must be, says the text of `members` to the generator.
Status check_horizontal(const OpDesc& op) {
  if (op.outs("y").empty()) return refuse(op, "y: expected one tensor or more, got none");
  return Status::ok();
}

OpSchema generated(int number, const char* kind, const char* name, const char* doc, const char* numerics,
                   Status (*check)(const OpDesc&)) {
  return {number,
          kind,
          name,
          doc,
          {strided(many("x")), strided(many("table"))},
          {strided(any("y"))},
          {required(kBody), required(kShape), optional(kReduced)},
          {},  // which pairs may share memory, its code knows
          numerics,
          check,
          nullptr,
          true};
}

}  // namespace

static const Family family([](KernelRegistry& registry) {
  registry.add(
      generated(35, "Map", "map", "y: the body at each point of shape, of the x there; it indexes tables",
                "f16 and bf16 are computed in f32 and rounded once", check_generated<Reduced::None>));
  registry.add(
      generated(36, "Rowwise", "rowwise",
                "y: the body of each x, with reductions over the last `reduced` dimensions of shape, and "
                "column sums over the others",
                "f16 and bf16 are computed in f32 and rounded once; sums in a fixed order",
                check_generated<Reduced::Last>));
  registry.add(
      generated(37, "Colwise", "colwise",
                "y: the body of each x, with reductions over the first `reduced` dimensions of shape",
                "f16 and bf16 are computed in f32 and rounded once; sums in a fixed order",
                check_generated<Reduced::First>));
  registry.add(
      OpSchema{46,
               "MultiTensorMap",
               "multi_tensor_map",
               "y: the body at each point of each segment, of the x there; a segment has its own tensors",
               {strided(many("x"))},
               {any("y")},
               {required(kBody), required(kSegments)},
               {},  // which pairs may share memory, its code knows
               "f16 and bf16 are computed in f32 and rounded once",
               check_each<Reduced::None>,
               nullptr,
               true});
  registry.add(
      OpSchema{47,
               "MultiTensorRowwise",
               "multi_tensor_rowwise",
               "y: the body of each segment, with reductions over all its elements; a segment has its own "
               "tensors",
               {strided(many("x"))},
               {strided(any("y"))},
               {required(kBody), required(kSegments)},
               {},
               "f16 and bf16 are computed in f32 and rounded once; sums in a fixed order",
               check_each<Reduced::Last>,
               nullptr,
               true});
  registry.add(
      OpSchema{48,
               "Horizontal",
               "horizontal",
               "y: what each of `members` computes of its part of the body; none reads what another gives",
               {strided(many("x"))},
               {strided(any("y"))},
               {required(kBody), required(kMembers), optional(kAhead)},
               {},
               "as each member by itself",
               check_horizontal,
               nullptr,
               true});
  registry.add(OpSchema{
      49,
      "BackToBack",
      "back_to_back",
      "y: the values of links, z = a op(b) and a body of z, x and values before; each multiplies what the "
      "last gave; behind them products of values over all rows",
      {OperandRow{"a"}, many("b"), strided(many("x"))},
      {any("y")},
      {required(kBodies), required(kLinks), optional(kBehind)},
      {},
      "z and the bodies in f32; what is multiplied, written or taken later is rounded to its type; sums "
      "of columns in f32, in an order that the kernel fixes",
      check_chain,
      nullptr,
      true});
});

}  // namespace aicf
