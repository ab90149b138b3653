// Scores of one head: products scaled, masked, and as weights.
#pragma once
#include "kernels/attention/problem.h"
#include "kernels/common/numeric.cuh"

namespace aicf::cuda {

template <class C>
__device__ __forceinline__ C minus_infinity() {
  return static_cast<C>(-__int_as_float(0x7f800000));
}

template <class T>
struct Scoring {
  using C = Compute<T>;

  __device__ __forceinline__ Scoring(const AttentionProblem& problem, int64_t b, int64_t h)
      : p(problem), scale(static_cast<C>(problem.scale)), first(b * p.mask.batch + h * p.mask.head) {}

  // Outside of the scores, or behind the query where it sees only what is before it: as if not there.
  __device__ __forceinline__ bool hidden(int64_t query, int64_t key) const {
    return query >= p.queries || key >= p.keys || (p.causal && key > query);
  }

  // Of a pair that is not hidden, from the product of query and key.
  __device__ __forceinline__ C operator()(C product, int64_t query, int64_t key) const {
    const C score = product * scale;
    const int64_t at = first + query * p.mask.row + key * p.mask.column;
    switch (p.mask_kind) {
      case MaskKind::Seen:
        return score + (static_cast<const unsigned char*>(p.mask.data)[at] != 0 ? C(0) : minus_infinity<C>());
      case MaskKind::Added:
        return score + widen(static_cast<const T*>(p.mask.data)[at]);
      case MaskKind::AddedWide:
        return score + static_cast<const C*>(p.mask.data)[at];
      default:
        return score;
    }
  }

  // From the largest score of the row and the inverse of its total.
  __device__ __forceinline__ C weight(C product, C largest, C inverse, int64_t query, int64_t key) const {
    if (hidden(query, key)) return C(0);
    return scalar::exp((*this)(product, query, key) - largest) * inverse;
  }

  const AttentionProblem& p;
  C scale;
  int64_t first;
};

}  // namespace aicf::cuda
