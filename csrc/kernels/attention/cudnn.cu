// Attention by cuDNN: the engine that its heuristics prefer among those whose bits are always the same, or
// the one that a plan names.
#include <algorithm>
#include <cmath>
#include <memory>
#include <sstream>
#include <string>

#include "device/cuda_scope.h"
#include "kernels/attention/backward.cuh"
#include "kernels/attention/cudnn_graph.h"
#include "kernels/attention/launch.h"

namespace aicf {
using namespace cuda;
namespace {

constexpr const char* kOwn = "own";  // where no engine takes it
constexpr size_t kOldest = 91600;    // older ones are wrong for keys that are no multiple of 128
constexpr int kMostChoices = 6;
// A statistic of at most this size changes a weight by less than an eighth of a rounding to f16.
constexpr float kLargestStatistic = 1024;
constexpr int kThreads = 256;
constexpr float kHidden = -3.3895313892515355e38f;  // the lowest of bf16

// A block for each head of keys: of each row of its scores the statistic, and whether one is too large. Then
// also what our own kernels need of its queries.
template <class T>
__global__ void __launch_bounds__(kThreads)
    attention_statistic_kernel(const __grid_constant__ AttentionProblem p, float* statistic, int32_t* chosen,
                               QueryRow<float>* rows) {
  dependency_wait();
  const auto *largest = static_cast<const float*>(p.largest), *total = static_cast<const float*>(p.total);
  const int64_t count = p.group() * p.queries, first = blockIdx.x * count;
  int large = 0;
  for (int64_t i = first + threadIdx.x; i < first + count; i += kThreads) {
    const float one = largest[i] + logf(total[i]);
    statistic[i] = one;
    if (!(fabsf(one) <= kLargestStatistic)) large = 1;
  }
  large = __syncthreads_or(large);
  if (threadIdx.x == 0) chosen[blockIdx.x] = large;
  if (!large) return;
  for (int64_t at = first + threadIdx.x / kWarp; at < first + count; at += kThreads / kWarp) {
    const int64_t head = at / p.queries, i = at % p.queries, b = head / p.heads, h = head % p.heads;
    const T *dout = p.dout.of<const T>(b, h) + i * p.dout.row,
            *out = p.saved.of<const T>(b, h) + i * p.saved.row;
    float delta = 0;
    for (int64_t c = threadIdx.x % kWarp; c < p.value_size; c += kWarp)
      delta = fused(widen(dout[c]), widen(out[c]), delta);
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      delta += __shfl_xor_sync(0xffffffffu, delta, distance);
    if (threadIdx.x % kWarp == 0) rows[at] = {largest[at], 1.0f / total[at], delta};
  }
}

// A mask as summands. -infinity is the lowest finite number: a row of nothing else must have a number to find
// it by, and next to it no score counts.
template <class B, class M>
__global__ void __launch_bounds__(kThreads)
    attention_bias_kernel(const __grid_constant__ AttentionProblem p, CudnnBias made, B* bias) {
  dependency_wait();
  const int64_t row = blockIdx.x, i = row % p.queries, matrix = row / p.queries;
  const M* mask = p.mask.of<const M>(matrix / made.heads, matrix % made.heads) + i * p.mask.row;
  for (int64_t j = threadIdx.x; j < made.pitch; j += kThreads) {
    float summand = 0;
    if (j < p.keys) {
      const M given = mask[j * p.mask.column];
      if constexpr (sizeof(M) == 1)
        summand = given != 0 ? 0.0f : kHidden;
      else
        summand = widen(given) == minus_infinity<float>() ? kHidden : widen(given);
    }
    bias[row * made.pitch + j] = narrow<B>(summand);
  }
}

// A warp for each row of scores whose largest is too large to keep the weights exact, or no number, or that
// of hidden keys alone: by the definition. Mostly there are none.
template <class T>
__global__ void __launch_bounds__(kThreads)
    attention_large_rows_kernel(const __grid_constant__ AttentionProblem p) {
  dependency_wait();
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  if (at >= p.rows()) return;
  auto *largest = static_cast<float*>(p.largest) + at, *total = static_cast<float*>(p.total) + at;
  if (fabsf(*largest) <= kLargestStatistic && *total < INFINITY) return;
  const int64_t head = at / p.queries, i = at % p.queries, b = head / p.heads, h = head % p.heads;
  const T *query = p.query.of<const T>(b, h) + i * p.query.row, *keys = p.key.of<const T>(b, h / p.group()),
          *values = p.value.of<const T>(b, h / p.group());
  const int64_t end = p.causal && i + 1 < p.keys ? i + 1 : p.keys;
  const auto score = [&](int64_t j) {
    const int64_t place = b * p.mask.batch + h * p.mask.head + i * p.mask.row + j * p.mask.column;
    float summand = 0;
    if (p.mask_kind == MaskKind::Seen)
      summand = static_cast<const unsigned char*>(p.mask.data)[place] ? 0.0f : minus_infinity<float>();
    else if (p.mask_kind == MaskKind::Added)
      summand = widen(static_cast<const T*>(p.mask.data)[place]);
    else
      summand = static_cast<const float*>(p.mask.data)[place];
    if (summand == minus_infinity<float>()) return summand;
    float product = 0;
    for (int64_t c = 0; c < p.size; ++c)
      product = fused(widen(query[c]), widen(keys[j * p.key.row + c]), product);
    return fused(product, static_cast<float>(p.scale), summand);
  };
  const auto over_warp = [](auto op, float x) {
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      x = op(x, __shfl_xor_sync(0xffffffffu, x, distance));
    return x;
  };
  float most = minus_infinity<float>(), sum = 0;
  for (int64_t j = lane(); j < end; j += kWarp) most = Max{}(most, score(j));
  most = over_warp(Max{}, most);
  constexpr int kColumns = static_cast<int>(kLargestHopperHead) / kWarp;  // of a lane
  float out[kColumns] = {};
  if (most != minus_infinity<float>()) {
    for (int64_t first = 0; first < end; first += kWarp) {
      const float own = first + lane() < end ? exp_fast(score(first + lane()) - most) : 0.0f;
      sum += own;
      for (int k = 0; k < kWarp && first + k < end; ++k) {
        const float weight = __shfl_sync(0xffffffffu, own, k);
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
          if (const int column = c * kWarp + lane(); column < p.value_size)
            out[c] = fused(weight, widen(values[(first + k) * p.value.row + column]), out[c]);
      }
    }
  }
  sum = over_warp(Add{}, sum);
  const float divisor = sum == 0 ? 1.0f : sum;
#pragma unroll
  for (int c = 0; c < kColumns; ++c)
    if (const int column = c * kWarp + lane(); column < p.value_size)
      (p.out.of<T>(b, h) + i * p.out.row)[column] = narrow<T>(out[c] / divisor);
  if (lane() == 0) {
    *largest = largest_kept(most, sum);
    *total = divisor;
  }
}

// The mask of all images as summands.
Status add_mask(const AttentionProblem& p, const CudnnBias& made, void* bias, const LaunchContext& ctx) {
  const auto write = [&](auto* to, auto mask) {
    using B = std::remove_pointer_t<decltype(to)>;
    using M = decltype(mask);
    const auto rows = static_cast<unsigned>(made.images * made.heads * p.queries);
    return aicf::cuda::launch(ctx, dim3(rows), kThreads, 0, attention_bias_kernel<B, M>, p, made, to);
  };
  return with_half_type(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto to = [&](auto* typed) {
      if (p.mask_kind == MaskKind::Seen) return write(typed, static_cast<unsigned char>(0));
      if (p.mask_kind == MaskKind::Added) return write(typed, T{});
      return write(typed, 0.0f);
    };
    return made.wide ? to(static_cast<float*>(bias)) : to(static_cast<__nv_bfloat16*>(bias));
  });
}

// The strides of an operand. Those of dimensions of size 1, which mean nothing, step over all the others.
template <class Pointer>
std::vector<int64_t> strides_of(const Heads<Pointer>& heads, int64_t batch, int64_t count, int64_t rows,
                                int64_t columns) {
  std::vector<int64_t> strides{heads.batch, heads.head, heads.row, 1};
  const int64_t shape[] = {batch, count, rows};
  int64_t reach = columns;
  for (int d = 0; d < 3; ++d)
    if (shape[d] > 1) reach = std::max(reach, shape[d] * strides[d]);
  for (int d = 0; d < 3; ++d)
    if (shape[d] == 1) strides[d] = reach;
  return strides;
}

AttentionGraph graph_of(const AttentionProblem& p, bool is_grad, int64_t slab) {
  using G = AttentionGraph;
  G g{is_grad,     p.causal, p.dtype == DType::F16 ? cudnn::kF16 : cudnn::kBF16,
      slab,        p.heads,  p.key_heads,
      p.queries,   p.keys,   p.size,
      p.value_size};
  if (const CudnnBias bias = cudnn_bias(p); bias.bytes > 0) {
    const int64_t matrix = p.queries * bias.pitch, image = bias.heads * matrix;
    g.bias_type = bias.wide ? cudnn::kF32 : cudnn::kBF16;
    g.bias_shape = {bias.images == 1 ? 1 : slab, bias.heads, p.queries, p.keys};
    g.bias_strides = {image, matrix, bias.pitch, 1};
  }
  g.strides[G::kQuery] = strides_of(p.query, slab, p.heads, p.queries, p.size);
  g.strides[G::kKey] = strides_of(p.key, slab, p.key_heads, p.keys, p.size);
  g.strides[G::kValue] = strides_of(p.value, slab, p.key_heads, p.keys, p.value_size);
  if (!is_grad) {
    g.strides[G::kOut] = strides_of(p.out, slab, p.heads, p.queries, p.value_size);
    return g;
  }
  g.strides[G::kOut] = strides_of(p.saved, slab, p.heads, p.queries, p.value_size);
  g.strides[G::kDout] = strides_of(p.dout, slab, p.heads, p.queries, p.value_size);
  g.strides[G::kDquery] = strides_of(p.dquery, slab, p.heads, p.queries, p.size);
  g.strides[G::kDkey] = strides_of(p.dkey, slab, p.key_heads, p.keys, p.size);
  g.strides[G::kDvalue] = strides_of(p.dvalue, slab, p.key_heads, p.keys, p.value_size);
  return g;
}

// All that an engine depends on.
std::string key_of(const AttentionGraph& g, size_t workspace, int device) {
  std::ostringstream key;
  key << "attention " << device << ' ' << workspace << ' ' << g.is_grad << g.causal << ' ' << g.type;
  for (const int64_t number : {g.batch, g.heads, g.key_heads, g.queries, g.keys, g.size, g.value_size})
    key << ' ' << number;
  for (const std::vector<int64_t>& strides : g.strides)
    for (const int64_t stride : strides) key << ' ' << stride;
  key << " bias " << g.bias_type;
  for (const int64_t number : g.bias_shape) key << ' ' << number;
  return key.str();
}

struct Call {
  AttentionProblem p;
  bool is_grad;
  CudnnGradMemory memory;  // of a gradient
  AttentionGraph graph;
  CudnnBias bias;

  size_t engine_bytes() const { return is_grad ? memory.engine : kForwardBytes; }
};

Call call_of(const OpDesc& op) {
  Call call{};
  call.p = attention_problem(op);
  call.is_grad = op.schema->outputs[0].name == std::string("dquery");
  if (call.is_grad) call.memory = cudnn_grad_memory(call.p);
  call.bias = cudnn_bias(call.p);
  call.graph = graph_of(call.p, call.is_grad, call.is_grad ? call.memory.slab : call.p.batch);
  return call;
}

Status describe(const Call& call, size_t workspace, int device, cudnn::Described* out) {
  if (cudnn::library()->version() < kOldest)
    return Status::unsupported("needs cuDNN 9.16 or newer for attention");
  AICF_TRY(cudnn::handle_of(device, &out->handle));
  out->rules = {true, true, workspace};
  return call.graph.describe(out);
}

class CudnnLaunch : public LaunchState {
 public:
  CudnnLaunch(const char* id, const Call& call, cudnn::Object handle, cudnn::Engine engine, bool asked)
      : LaunchState(id, engine->name, asked),
        call_(call),
        handle_(handle),
        engine_(std::move(engine)),
        ids_(call.graph.ids()),
        numbers_{static_cast<float>(call.p.scale), -INFINITY, 1.0f} {}

  Status launch(const LaunchContext& ctx) const override {
    const AttentionProblem& p = call_.p;
    auto* memory = static_cast<unsigned char*>(ctx.workspace);
    unsigned char* bias = memory + (call_.is_grad ? call_.memory.bias : kForwardBytes);
    if (call_.bias.bytes > 0) AICF_TRY(add_mask(p, call_.bias, bias, ctx));
    if (!call_.is_grad) {
      AICF_TRY(execute(ctx, 0, bias, nullptr, nullptr));
      if (call_.bias.bytes == 0) return Status::ok();
      return with_half_type(p.dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const auto blocks = static_cast<unsigned>(ceil_div<int64_t>(p.rows(), kThreads / kWarp));
        return aicf::cuda::launch(ctx, dim3(blocks), kThreads, 0, attention_large_rows_kernel<T>, p);
      });
    }
    auto* statistic = reinterpret_cast<float*>(memory + call_.memory.statistic);
    auto* delta = reinterpret_cast<float*>(memory + call_.memory.delta);
    auto* chosen = reinterpret_cast<int32_t*>(memory + call_.memory.chosen);
    auto* rows = reinterpret_cast<QueryRow<float>*>(memory + call_.memory.rows);
    AICF_TRY(with_half_type(p.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      return aicf::cuda::launch(ctx, dim3(static_cast<unsigned>(p.batch * p.key_heads)), kThreads, 0,
                                attention_statistic_kernel<T>, p, statistic, chosen, rows);
    }));
    for (int64_t first = 0; first < p.batch; first += call_.memory.slab)
      AICF_TRY(execute(ctx, first, bias, statistic, delta));
    AttentionProblem large = p;
    large.chosen = chosen;
    LaunchContext own = ctx;
    own.workspace = rows;
    return attention_grad_hopper_chosen(large, own);
  }

 private:
  // Images from `first` on, as many as the graph has.
  Status execute(const LaunchContext& ctx, int64_t first, unsigned char* bias, float* statistic,
                 float* delta) const {
    const AttentionProblem& p = call_.p;
    using G = AttentionGraph;
    constexpr int64_t kElementBytes = 2;
    const auto at = [&](const auto& heads) -> void* {
      const void* data = static_cast<const unsigned char*>(static_cast<const void*>(heads.data)) +
                         first * heads.batch * kElementBytes;
      return const_cast<void*>(data);
    };
    void* pointers[G::kOneNumber + 1] = {};
    pointers[G::kQuery] = at(p.query);
    pointers[G::kKey] = at(p.key);
    pointers[G::kValue] = at(p.value);
    pointers[G::kOut] = call_.is_grad ? at(p.saved) : at(p.out);
    pointers[G::kLargest] = p.largest;
    pointers[G::kTotal] = p.total;
    const int64_t image = call_.bias.images == 1 ? 0 : first;
    pointers[G::kBias] = bias + static_cast<size_t>(image) * call_.bias.bytes_of_image(p.queries);
    for (int i = 0; i < 3; ++i) pointers[G::kScaleNumber + i] = const_cast<float*>(numbers_ + i);
    if (call_.is_grad) {
      const int64_t row = first * p.heads * p.queries;
      pointers[G::kStatistic] = statistic + row;
      pointers[G::kDelta] = delta + row;
      pointers[G::kDout] = at(p.dout);
      pointers[G::kDquery] = at(p.dquery);
      pointers[G::kDkey] = at(p.dkey);
      pointers[G::kDvalue] = at(p.dvalue);
    }
    std::vector<void*> given;
    for (const int64_t id : ids_) given.push_back(pointers[id]);
    return cudnn::execute(handle_, *engine_, ids_, given, ctx.workspace, ctx.stream);
  }

  const Call call_;
  const cudnn::Object handle_;
  const cudnn::Engine engine_;
  const std::vector<int64_t> ids_;
  const float numbers_[3];  // in the order of their ids
};

class OwnLaunch : public LaunchState {
 public:
  OwnLaunch(const char* id, const Call& call, bool asked) : LaunchState(id, kOwn, asked), call_(call) {}
  Status launch(const LaunchContext& ctx) const override {
    return call_.is_grad ? attention_grad_hopper(call_.p, ctx) : attention_hopper(call_.p, ctx);
  }

 private:
  const Call call_;
};

}  // namespace

Status prepare_attention_cudnn(const KernelVariant& self, const OpDesc& op, const std::string& asked,
                               LaunchPointer* out) {
  if (!cudnn::available()) return Status::unsupported(std::string(self.name) + " " + cudnn::kMissing);
  const Call call = call_of(op);
  if (asked == kOwn) {
    *out = std::make_shared<OwnLaunch>(self.name, call, true);
    return Status::ok();
  }
  cudaPointerAttributes memory = {};
  AICF_CUDA_TRY(cudaPointerGetAttributes(&memory, op.outputs[0].data));
  const CurrentDevice current(memory.device);
  cudnn::Engine engine;
  cudnn::Object handle = nullptr;
  AICF_TRY(cudnn::handle_of(memory.device, &handle));
  const size_t workspace = call.engine_bytes();
  const Status found = cudnn::engine_of(
      key_of(call.graph, workspace, memory.device), asked,
      [&](cudnn::Described* described) { return describe(call, workspace, memory.device, described); },
      &engine);
  if (found.is_ok())
    *out = std::make_shared<CudnnLaunch>(self.name, call, handle, std::move(engine), !asked.empty());
  else if (asked.empty())
    *out = std::make_shared<OwnLaunch>(self.name, call, false);
  else
    return found;
  return Status::ok();
}

Status choices_of_attention_cudnn(const OpDesc& op, std::vector<std::string>* out) {
  if (!cudnn::available()) return Status::unsupported(cudnn::kMissing);
  int device = 0;
  AICF_CUDA_TRY(cudaGetDevice(&device));
  const Call call = call_of(op);
  cudnn::Described described;
  if (describe(call, call.engine_bytes(), device, &described).is_ok())
    AICF_TRY(cudnn::list(described.handle, described.graph, described.rules, kMostChoices, out));
  if (out->empty()) out->push_back(kOwn);
  return Status::ok();
}

}  // namespace aicf
