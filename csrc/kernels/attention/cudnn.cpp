// What of attention cuDNN takes, and with how much memory: rules of the sizes, for plans are made where there
// is no library to ask.
#include <climits>

#include "kernels/attention/launch.h"
#include "kernels/common/schema_checks.h"

namespace aicf {
namespace {

constexpr int64_t kVector = 8;  // elements of 16 bits in 16 bytes
constexpr size_t kUnit = 256;
// cuDNN's deterministic gradient keeps the gradient of all scores of a slab in 16 bits. Slabs are as large
// as fits here.
constexpr size_t kMostOfScores = size_t{2} << 30;
constexpr size_t kMostOfBias = size_t{1} << 29;

template <class Integer>
Integer rounded_up(Integer number, Integer unit) {
  return (number + unit - 1) / unit * unit;
}

// Measured of cuDNN 9.19: scores in blocks of 64 queries and 128 keys; with groups, the gradients of keys and
// values of every head of queries; and some room for other versions.
size_t engine_bytes(const AttentionProblem& p, int64_t slab) {
  constexpr int64_t kElementBytes = 2, kRoom = int64_t{1} << 20;
  int64_t of_head = rounded_up<int64_t>(p.queries, 64) * rounded_up<int64_t>(p.keys, 128);
  if (p.heads != p.key_heads) of_head += p.keys * (p.size + p.value_size);
  return static_cast<size_t>(slab * p.heads * of_head * kElementBytes + kRoom);
}

// The most images that divide the batch and fit; each slab's numbers of rows begin where the first one's do,
// at 16 bytes. 0 where there are none.
int64_t slab_of(const AttentionProblem& p) {
  constexpr int64_t kNumbers = 4;  // of f32 in 16 bytes
  for (int64_t slabs = 1; slabs <= p.batch; ++slabs) {
    const int64_t slab = p.batch / slabs;
    const bool aligned = slabs == 1 || slab * p.heads * p.queries % kNumbers == 0;
    if (p.batch % slabs == 0 && aligned && engine_bytes(p, slab) <= kMostOfScores) return slab;
  }
  return 0;
}

Status needs_vectors(const char* name, const TensorDesc& t) {
  if (t.rank != 4) return Status::ok();
  if (t.numel() == 0) return decline("needs elements, ", name, " is ", t.str());
  if (t.shape[3] % kVector != 0)
    return decline("needs heads of a multiple of ", kVector, " elements, ", name, " is ", t.str());
  int64_t reach = 1;
  for (int d = 0; d < 3; ++d) {
    if (t.shape[d] == 1) continue;
    if (t.strides[d] <= 0 || t.strides[d] % kVector != 0)
      return decline("needs strides of a multiple of ", kVector, " elements, ", name, " has ",
                     t.strides_str());
    reach += (t.shape[d] - 1) * t.strides[d];
  }
  if (reach > INT_MAX) return decline("needs operands of fewer than 2^31 elements, ", name, " is ", t.str());
  return Status::ok();
}

}  // namespace

Status supports_attention_cudnn(const OpDesc& op) {
  constexpr uint32_t kAlignment = 16;
  for (const OperandRow& row : op.schema->inputs)
    if (row.count == Count::One) AICF_TRY(needs_vectors(row.name, op.in(row.name)));
  for (const OperandRow& row : op.schema->outputs) AICF_TRY(needs_vectors(row.name, op.out(row.name)));
  AICF_TRY(needs_alignment(op, kAlignment));
  const AttentionProblem p = attention_problem(op);
  if (slab_of(p) == 0)
    return decline("needs scores of one image of at most ", kMostOfScores, " bytes, got ", engine_bytes(p, 1),
                   ", or of images with a multiple of 4 rows");
  if (const size_t bytes = cudnn_bias(p).bytes; bytes > kMostOfBias)
    return decline("needs a mask of at most ", kMostOfBias, " bytes as summands, got ", bytes);
  return Status::ok();
}

CudnnBias cudnn_bias(const AttentionProblem& p) {
  if (p.mask_kind == MaskKind::None) return {};
  CudnnBias bias{p.mask.batch == 0 ? 1 : p.batch, p.mask.head == 0 ? 1 : p.heads,
                 rounded_up<int64_t>(p.keys, kVector),
                 p.dtype == DType::F16 || p.mask_kind == MaskKind::AddedWide, 0};
  bias.bytes = rounded_up(static_cast<size_t>(bias.images) * bias.bytes_of_image(p.queries), kUnit);
  return bias;
}

size_t attention_cudnn_workspace(const OpDesc& op) {
  return kForwardBytes + cudnn_bias(attention_problem(op)).bytes;
}

CudnnGradMemory cudnn_grad_memory(const AttentionProblem& p) {
  constexpr size_t kNumber = 4, kRowBytes = 16;
  CudnnGradMemory memory{};
  memory.slab = slab_of(p);
  memory.engine = rounded_up(engine_bytes(p, memory.slab), kUnit);
  memory.bias = memory.engine;
  const auto rows = static_cast<size_t>(p.rows()), heads = static_cast<size_t>(p.batch * p.key_heads);
  memory.statistic = memory.bias + cudnn_bias(p).bytes;
  memory.delta = memory.statistic + rounded_up(rows * kNumber, kUnit);
  memory.chosen = memory.delta + rounded_up(rows * kNumber, kUnit);
  memory.rows = memory.chosen + rounded_up(heads * kNumber, kUnit);
  memory.whole = memory.rows + rounded_up(rows * kRowBytes, kUnit);
  return memory;
}

size_t attention_grad_cudnn_workspace(const OpDesc& op) {
  return cudnn_grad_memory(attention_problem(op)).whole;
}

}  // namespace aicf
