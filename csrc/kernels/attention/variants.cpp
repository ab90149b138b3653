// attention and its gradient: what they accept and the kernels that run them.
#include <algorithm>
#include <climits>
#include <initializer_list>

#include "kernels/attention/launch.h"
#include "kernels/common/rows.h"
#include "op/registry.h"

namespace aicf {
namespace {

DType compute_dtype(DType dtype) { return dtype == DType::F64 ? DType::F64 : DType::F32; }

// mask: rank 4, each dimension that of the scores or 1.
Status check_mask(const OpDesc& op, const TensorDesc& mask, const TensorDesc& scores) {
  const DType wide = compute_dtype(scores.dtype);
  if (mask.dtype != DType::I1 && mask.dtype != scores.dtype && mask.dtype != wide)
    return refuse(op, "mask: expected element type i1", wide == scores.dtype ? "" : ", ",
                  wide == scores.dtype ? "" : dtype_name(scores.dtype), " or ", dtype_name(wide), ", got ",
                  mask.str());
  AICF_TRY(expect_rank(op, "mask", mask, 4));
  for (int d = 0; d < 4; ++d)
    if (mask.shape[d] != scores.shape[d] && mask.shape[d] != 1)
      return refuse(op, "mask: expected dimensions of scores ", scores.str(), " or 1, got ", mask.str());
  return Status::ok();
}

// query [B, H, Tq, D], key [B, Hkv, Tk, D], value [B, Hkv, Tk, Dv], H a multiple of Hkv, D at least 1.
Status check_heads(const OpDesc& op) {
  const TensorDesc &query = op.in("query"), &key = op.in("key"), &value = op.in("value");
  AICF_TRY(expect_float(op, "query", query));
  for (const char* name : {"query", "key", "value"}) AICF_TRY(expect_rank(op, name, op.in(name), 4));
  const int64_t batch = query.shape[0], heads = query.shape[1], groups = key.shape[1];
  if (groups < 1 || heads % groups != 0)
    return refuse(op, "expected heads of queries that are a multiple of those of keys, got query ",
                  query.str(), " and key ", key.str());
  if (query.shape[3] < 1) return refuse(op, "query: expected elements in a head, got ", query.str());
  AICF_TRY(expect_tensor(op, "key", key,
                         expected_tensor(query.dtype, {batch, groups, key.shape[2], query.shape[3]})));
  AICF_TRY(expect_tensor(op, "value", value,
                         expected_tensor(query.dtype, {batch, groups, key.shape[2], value.shape[3]})));
  if (!op.has_in("mask")) return Status::ok();
  return check_mask(op, op.in("mask"),
                    expected_tensor(query.dtype, {batch, heads, query.shape[2], key.shape[2]}));
}

TensorDesc out_of(const OpDesc& op) {
  TensorDesc out = op.in("query");
  out.shape[3] = op.in("value").shape[3];
  return out;
}

// What is kept of each row of scores.
TensorDesc row_of(const OpDesc& op) {
  const TensorDesc& query = op.in("query");
  return expected_tensor(compute_dtype(query.dtype), {query.shape[0], query.shape[1], query.shape[2]});
}

// random [2] of i64, with a probability that numbers of 16 bits can tell from 1.
Status check_dropout(const OpDesc& op) {
  const double dropped = op.attrs.get(kDropped);
  const int64_t site = op.attrs.get(kSite);
  if (!op.has_in("random"))
    return dropped == 0 ? Status::ok() : refuse(op, "p: expected 0 without random, got ", dropped);
  AICF_TRY(expect_tensor(op, "random", op.in("random"), expected_tensor(DType::I64, {2})));
  if (!(dropped >= 0 && dropped <= 1 - 1 / 65536.0))
    return refuse(op, "p: expected at least 0 and at most 1 - 2^-16, got ", dropped);
  if (site < 0 || site > UINT32_MAX) return refuse(op, "site: expected 32 bits, got ", site);
  return Status::ok();
}

Status check_attention(const OpDesc& op) {
  AICF_TRY(check_heads(op));
  AICF_TRY(check_dropout(op));
  AICF_TRY(expect_tensor(op, "out", op.out("out"), out_of(op)));
  AICF_TRY(expect_tensor(op, "largest", op.out("largest"), row_of(op)));
  return expect_tensor(op, "total", op.out("total"), row_of(op));
}

// What both gradients are given.
Status check_given(const OpDesc& op) {
  AICF_TRY(check_heads(op));
  AICF_TRY(check_dropout(op));
  AICF_TRY(expect_tensor(op, "dout", op.in("dout"), out_of(op)));
  AICF_TRY(expect_tensor(op, "out", op.in("out"), out_of(op)));
  AICF_TRY(expect_tensor(op, "largest", op.in("largest"), row_of(op)));
  return expect_tensor(op, "total", op.in("total"), row_of(op));
}

Status check_attention_grad(const OpDesc& op) {
  AICF_TRY(check_given(op));
  AICF_TRY(expect_tensor(op, "dquery", op.out("dquery"), op.in("query")));
  AICF_TRY(expect_tensor(op, "dkey", op.out("dkey"), op.in("key")));
  return expect_tensor(op, "dvalue", op.out("dvalue"), op.in("value"));
}

// dmask [B or 1, H or 1, Tq, Tk] as the mask has images and heads, in its type or in the one of scores.
Status check_attention_mask_grad(const OpDesc& op) {
  AICF_TRY(check_given(op));
  const TensorDesc &mask = op.in("mask"), &query = op.in("query"), &dmask = op.out("dmask");
  if (mask.dtype == DType::I1) return refuse(op, "mask: expected numbers, got ", mask.str());
  const DType wide = compute_dtype(query.dtype);
  return expect_tensor(
      op, "dmask", dmask,
      expected_tensor(dmask.dtype == wide ? wide : query.dtype,
                      {mask.shape[0], mask.shape[1], query.shape[2], op.in("key").shape[2]}));
}

Status needs_neighbours(const char* name, const TensorDesc& t) {
  if (t.numel() == 0 || t.shape[3] == 1 || t.strides[3] == 1) return Status::ok();
  return decline("needs neighbours along the last dimension, ", name, " is ", t.str(), " with strides ",
                 t.strides_str());
}

template <DType dtype, int64_t kLargest = kLargestHead>
Status supports_heads(const OpDesc& op) {
  AICF_TRY(needs_dtype(op, dtype));
  const int64_t largest = std::max(op.in("query").shape[3], op.in("value").shape[3]);
  if (largest > kLargest) return decline("needs heads of at most ", kLargest, " elements, got ", largest);
  for (const OperandRow& row : op.schema->inputs)
    if (row.count == Count::One && op.in(row.name).rank == 4)
      AICF_TRY(needs_neighbours(row.name, op.in(row.name)));
  for (const OperandRow& row : op.schema->outputs)
    if (op.out(row.name).rank == 4) AICF_TRY(needs_neighbours(row.name, op.out(row.name)));
  return needs_element_alignment(op);
}

template <DType dtype>
Status supports_hopper(const OpDesc& op) {
  if (!(op.attrs.get(kScale) > 0)) return decline("needs a positive scale, got ", op.attrs.get(kScale));
  const int64_t rows = std::max(op.in("query").shape[2], op.in("key").shape[2]);
  if (rows > INT_MAX / 2) return decline("needs at most 2^30 queries and keys of a head, got ", rows);
  return supports_heads<dtype, kLargestHopperHead>(op);
}

template <DType dtype>
Status supports_tile(const OpDesc& op) {
  const int64_t rows = std::max(op.in("query").shape[2], op.in("key").shape[2]);
  if (rows > kMostTileRows) return decline("needs at most ", kMostTileRows, " queries and keys, got ", rows);
  return supports_heads<dtype, kLargestTileHead>(op);
}

// Keys that several heads share would have a sum over them.
template <DType dtype>
Status supports_tile_grad(const OpDesc& op) {
  const int64_t heads = op.in("query").shape[1], key_heads = op.in("key").shape[1];
  if (heads != key_heads)
    return decline("needs keys for each head, got ", key_heads, " heads of keys for ", heads);
  return supports_tile<dtype>(op);
}

constexpr Prepare cpu = prepare_with<attention_problem, attention_cpu>;
constexpr Prepare cpu_grad = prepare_with<attention_problem, attention_grad_cpu>;
constexpr Prepare cuda = AICF_CUDA((prepare_with<attention_problem, attention_cuda>));
constexpr Prepare cuda_grad = AICF_CUDA((prepare_with<attention_problem, attention_grad_cuda>));

constexpr Prepare cpu_mask = prepare_with<attention_problem, attention_mask_grad_cpu>;
constexpr Prepare cuda_mask = AICF_CUDA((prepare_with<attention_problem, attention_mask_grad_cuda>));

constexpr Prepare tile = AICF_CUDA((prepare_with<attention_problem, attention_tile>));
constexpr Prepare tile_grad = AICF_CUDA((prepare_with<attention_problem, attention_grad_tile>));
constexpr Prepare tile_mask = AICF_CUDA((prepare_with<attention_problem, attention_mask_grad_tile>));

constexpr Prepare hopper = AICF_CUDA((prepare_with<attention_problem, attention_hopper>));
constexpr Prepare hopper_grad = AICF_CUDA((prepare_with<attention_problem, attention_grad_hopper>));

Status drops_nothing(const OpDesc& op) {
  return op.has_in("random") ? decline("drops no weights") : Status::ok();
}

template <DType dtype>
Status supports_cudnn(const OpDesc& op) {
  AICF_TRY(drops_nothing(op));
  AICF_TRY(supports_hopper<dtype>(op));
  return supports_attention_cudnn(op);
}

Status prefers_hopper(const OpDesc& op) {
  const MaskKind kind = attention_problem(op).mask_kind;
  if (kind == MaskKind::Added || kind == MaskKind::AddedWide)
    return decline("is taken where a mask shows and hides, not where it is added");
  return Status::ok();
}

// Of fewer scores each is ahead for some sizes, on an H100, by a few microseconds.
Status prefers_cudnn(const OpDesc& op) {
  constexpr int64_t kLeast = int64_t{1} << 20;
  const AttentionProblem p = attention_problem(op);
  const int64_t scores = p.rows() * p.keys;
  return scores >= kLeast ? Status::ok() : decline("is taken for ", kLeast, " scores or more, got ", scores);
}

#define AICF_CUDNN_ROW(op, type, dtype, workspace)                                                           \
  only_on(90,                                                                                                \
          choosing(library_row(Library::Cudnn, op type "_cudnn", op, 90, AICF_CUDA(prepare_attention_cudnn), \
                               supports_cudnn<dtype>, prefers_cudnn, workspace),                             \
                   AICF_CUDA(choices_of_attention_cudnn)))
#define AICF_CUDNN_ROWS(op, workspace) \
  AICF_CUDNN_ROW(op, "_f16", DType::F16, workspace), AICF_CUDNN_ROW(op, "_bf16", DType::BF16, workspace)
#define AICF_HOPPER_ROW(op, type, dtype, prepare, workspace)                                              \
  only_on(90, preferring(cuda_row(op type "_hopper", op, 90, prepare, supports_hopper<dtype>, workspace), \
                         prefers_hopper))
#define AICF_HOPPER_ROWS(op, prepare, workspace)               \
  AICF_HOPPER_ROW(op, "_f16", DType::F16, prepare, workspace), \
      AICF_HOPPER_ROW(op, "_bf16", DType::BF16, prepare, workspace)
#define AICF_TILE_ROWS(op, prepare, supports, workspace)                      \
  cuda_row(op "_f16_tile", op, 80, prepare, supports<DType::F16>, workspace), \
      cuda_row(op "_bf16_tile", op, 80, prepare, supports<DType::BF16>, workspace)
#define AICF_ATTENTION_ROWS(op, prepare, workspace)                                           \
  cuda_row(op "_f16_tc", op, 80, prepare, supports_heads<DType::F16>, workspace),             \
      cuda_row(op "_bf16_tc", op, 80, prepare, supports_heads<DType::BF16>, workspace),       \
      cuda_row(op "_f32_blocks", op, kSmAny, prepare, supports_heads<DType::F32>, workspace), \
      cuda_row(op "_f64_blocks", op, kSmAny, prepare, supports_heads<DType::F64>, workspace)

constexpr KernelVariant kVariants[] = {
    AICF_TILE_ROWS("attention", tile, supports_tile, nullptr),
    AICF_CUDNN_ROWS("attention", attention_cudnn_workspace),
    AICF_HOPPER_ROWS("attention", hopper, nullptr),
    AICF_ATTENTION_ROWS("attention", cuda, nullptr),
    cpu_row("attention_cpu", "attention", cpu, needs_element_alignment, attention_cpu_workspace),
    AICF_TILE_ROWS("attention_grad", tile_grad, supports_tile_grad, nullptr),
    AICF_CUDNN_ROWS("attention_grad", attention_grad_cudnn_workspace),
    AICF_HOPPER_ROWS("attention_grad", hopper_grad, attention_grad_hopper_workspace),
    AICF_ATTENTION_ROWS("attention_grad", cuda_grad, attention_grad_cuda_workspace),
    cpu_row("attention_grad_cpu", "attention_grad", cpu_grad, needs_element_alignment,
            attention_grad_cpu_workspace),
    AICF_TILE_ROWS("attention_mask_grad", tile_mask, supports_tile, attention_mask_grad_tile_workspace),
    AICF_ATTENTION_ROWS("attention_mask_grad", cuda_mask, attention_mask_grad_cuda_workspace),
    cpu_row("attention_mask_grad_cpu", "attention_mask_grad", cpu_mask, needs_element_alignment,
            attention_mask_grad_cpu_workspace),
};

constexpr const char* kNumerics =
    "scores and sums in f32 (f64 for f64), in an order that the kernel fixes; each result rounded once; on "
    "tensor cores weights and their gradients are rounded to f16 or bf16 before they are multiplied";

}  // namespace

size_t attention_grad_cuda_workspace(const OpDesc& op) {
  const AttentionProblem p = attention_problem(op);
  return static_cast<size_t>(p.rows()) * dtype_size(compute_dtype(p.dtype));
}

MaskParts::MaskParts(const AttentionProblem& p) {
  constexpr int64_t kTile = 64, kEnough = 1024;  // blocks of threads
  const int64_t tiles =
      (p.queries + kTile - 1) / kTile * ((p.keys + kTile - 1) / kTile) * p.dmask_images * p.dmask_heads;
  const int64_t all = std::max<int64_t>(MaskMatrix(p, 0).count, 1);
  const int64_t wanted = std::clamp<int64_t>(kEnough / std::max<int64_t>(tiles, 1), 1, all);
  shared = (all + wanted - 1) / wanted;
  count = (all + shared - 1) / shared;
}

size_t attention_mask_grad_tile_workspace(const OpDesc& op) {
  const AttentionProblem p = attention_problem(op);
  const int64_t parts = MaskParts(p).count, all = p.dmask_images * p.dmask_heads * p.queries * p.keys;
  return parts > 1 ? static_cast<size_t>(parts * all) * dtype_size(compute_dtype(p.dtype)) : 0;
}

size_t attention_mask_grad_cuda_workspace(const OpDesc& op) {
  return attention_grad_cuda_workspace(op) + attention_mask_grad_tile_workspace(op);
}

size_t attention_grad_hopper_workspace(const OpDesc& op) {
  constexpr size_t kRowBytes = 16;  // three numbers
  return static_cast<size_t>(attention_problem(op).rows()) * kRowBytes;
}

static const Family family([](KernelRegistry& registry) {
  const std::vector<AttrRow> attrs = {optional(kCausal), required(kScale), optional(kDropped),
                                      optional(kSite)};
  registry.add(OpSchema{
      44,
      "Attention",
      "attention",
      "softmax of scale * query keyT, with the mask and without the keys behind the query, times "
      "value; of each "
      "row of scores largest, and total of exp(score - largest): 0 and 1 where it sees nothing; with random "
      "a weight is 0 with probability p, else over 1 - p",
      {strided("query"), strided("key"), strided("value"), strided(maybe("mask")), maybe("random")},
      {strided("out"), {"largest"}, {"total"}},
      attrs,
      {},
      kNumerics,
      check_attention});
  const auto given = [](const OperandRow& mask) {  // of both gradients
    return std::vector<OperandRow>{strided("dout"), strided("query"), strided("key"), strided("value"),
                                   strided("out"),  {"largest"},      {"total"},      mask,
                                   maybe("random")};
  };
  registry.add(OpSchema{45,
                        "AttentionGrad",
                        "attention_grad",
                        "gradient of attention from dout and its results",
                        given(strided(maybe("mask"))),
                        {strided("dquery"), strided("dkey"), strided("dvalue")},
                        attrs,
                        {},
                        kNumerics,
                        check_attention_grad});
  registry.add(OpSchema{64,
                        "AttentionMaskGrad",
                        "attention_mask_grad",
                        "gradient of the mask of attention from dout and its results, for all queries and "
                        "keys: summed over images and heads where the mask has one",
                        given(strided("mask")),
                        {{"dmask"}},
                        attrs,
                        {},
                        kNumerics,
                        check_attention_mask_grad});
  for (const KernelVariant& variant : kVariants) registry.add(variant);
});

}  // namespace aicf
