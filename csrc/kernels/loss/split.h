// How the losses are divided on CUDA, and the workspace that takes.
#pragma once
#include "kernels/common/split.h"
#include "kernels/loss/params.h"

namespace aicf {

constexpr int kLossThreads = 1024;
constexpr int64_t kTargetsCountedInPlace = 4096;  // more targets are counted once, before the gradient

// What a block leaves for the last step of a loss.
template <class C>
struct LossPart {
  C sum;
  int64_t rows;  // that are not ignored
};

inline Split mse_split(int64_t elements) { return split_terms(elements, 1, 32 * kLossThreads, 16); }

inline Split cross_entropy_split(const CrossEntropyParams& p) {
  return split_terms(p.rows, 1, p.classes <= kLongestWarpRow ? 8 * kLossThreads / 32 : 1);
}

inline bool counts_targets_first(const CrossEntropyParams& p) {
  return p.mean && p.rows > kTargetsCountedInPlace;
}

inline size_t loss_parts_bytes(const Split& split) {
  return split.parts > 1 ? static_cast<size_t>(split.parts) * sizeof(LossPart<double>) : 0;
}
inline size_t mse_loss_cuda_workspace(const OpDesc& op) {
  return loss_parts_bytes(mse_split(op.in("y").numel()));
}
inline size_t cross_entropy_cuda_workspace(const OpDesc& op) {
  return loss_parts_bytes(cross_entropy_split(cross_entropy_params(op)));
}
inline size_t cross_entropy_grad_cuda_workspace(const OpDesc& op) {
  return counts_targets_first(cross_entropy_params(op)) ? sizeof(int64_t) : 0;
}

}  // namespace aicf
