// Kernels of attention and its gradient; what they compute stands in problem.h.
#pragma once
#include "kernels/attention/problem.h"

namespace aicf {

// Blocks of queries against blocks of keys, with products by the loaded BLAS; f16 and bf16 are widened block
// by block. Any strides.
Status attention_cpu(const AttentionProblem& p, const LaunchContext& ctx);
Status attention_grad_cpu(const AttentionProblem& p, const LaunchContext& ctx);
size_t attention_cpu_workspace(const OpDesc& op);
size_t attention_grad_cpu_workspace(const OpDesc& op);

// The largest size of a query or a value that the CUDA kernels take.
constexpr int64_t kLargestHead = 256;

// A block of threads for each block of queries, or of keys, of a head; scores live in registers. f16 and bf16
// on tensor cores. Neighbours along the last dimension, other strides as they are.
Status attention_cuda(const AttentionProblem& p, const LaunchContext& ctx);
Status attention_grad_cuda(const AttentionProblem& p, const LaunchContext& ctx);
size_t attention_grad_cuda_workspace(const OpDesc& op);

// The gradient of a mask that is added: the scores once more. Memory has a number a row, and `MaskParts`.
Status attention_mask_grad_cpu(const AttentionProblem& p, const LaunchContext& ctx);
Status attention_mask_grad_cuda(const AttentionProblem& p, const LaunchContext& ctx);
size_t attention_mask_grad_cpu_workspace(const OpDesc& op);
size_t attention_mask_grad_cuda_workspace(const OpDesc& op);

// How the images and heads that share a matrix of a mask are divided on a GPU, so that there are blocks of
// threads enough. A rule of the sizes: results depend on no chip.
struct MaskParts {
  int64_t count, shared;  // parts; images and heads of each, the last one may have fewer
  explicit MaskParts(const AttentionProblem& p);
};

// Heads of at most this many queries and keys as one tile: each operand is read once, and the gradients share
// the scores. f16 and bf16, for queries and values of at most this size; the gradients without heads of keys
// that several heads of queries share.
constexpr int64_t kMostTileRows = 64, kLargestTileHead = 128;
Status attention_tile(const AttentionProblem& p, const LaunchContext& ctx);
Status attention_grad_tile(const AttentionProblem& p, const LaunchContext& ctx);
Status attention_mask_grad_tile(const AttentionProblem& p, const LaunchContext& ctx);
size_t attention_mask_grad_tile_workspace(const OpDesc& op);

// Attention and its gradient on Hopper's tensor cores, f16 and bf16, with a positive scale, for queries and
// values of at most this size.
constexpr int64_t kLargestHopperHead = 128;
Status attention_hopper(const AttentionProblem& p, const LaunchContext& ctx);
Status attention_grad_hopper(const AttentionProblem& p, const LaunchContext& ctx);
// Of a problem with a mask: units of compilation of their own.
Status attention_hopper_masked(const AttentionProblem& p, const LaunchContext& ctx);
Status attention_grad_hopper_masked(const AttentionProblem& p, const LaunchContext& ctx);
size_t attention_grad_hopper_workspace(const OpDesc& op);
// The gradients of the heads of keys that p.chosen names, and of their queries; others stay as they are. The
// workspace has a QueryRow<float> for each of these queries.
Status attention_grad_hopper_chosen(const AttentionProblem& p, const LaunchContext& ctx);

// The same by cuDNN. Its gradient reads one number for a row of scores, the logarithm of the sum of their
// exponentials. Heads where that is too large to keep the weights exact, or no number, are then computed by
// the kernels above.
Status supports_attention_cudnn(const OpDesc& op);
constexpr size_t kForwardBytes = size_t{1} << 20;  // of cuDNN's own, forward; a bias lies behind them
size_t attention_cudnn_workspace(const OpDesc& op);
size_t attention_grad_cudnn_workspace(const OpDesc& op);
Status prepare_attention_cudnn(const KernelVariant& self, const OpDesc& op, const std::string& asked,
                               LaunchPointer* out);
Status choices_of_attention_cudnn(const OpDesc& op, std::vector<std::string>* out);

// A mask as cuDNN takes it: summands of scores [images, heads, queries, keys] in rows of `pitch`, in f32
// where `wide`, else in bf16. An image, or a head, where all have the same; none of both without a mask.
struct CudnnBias {
  int64_t images, heads, pitch;
  bool wide;
  size_t bytes;

  size_t bytes_of_image(int64_t queries) const {
    return static_cast<size_t>(heads * queries * pitch) * (wide ? 4 : 2);
  }
};
CudnnBias cudnn_bias(const AttentionProblem& p);

// Where everything lies in the workspace of a gradient by cuDNN, which takes `slab` images at once.
struct CudnnGradMemory {
  int64_t slab;
  size_t engine;                                       // bytes of cuDNN's own
  size_t bias, statistic, delta, chosen, rows, whole;  // first bytes of the parts behind it, and all
};
CudnnGradMemory cudnn_grad_memory(const AttentionProblem& p);

}  // namespace aicf
