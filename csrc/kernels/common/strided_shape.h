// Reading operands with strides of their own while the result is written in order: broadcasting and
// transposition.
#pragma once
#include <array>
#include <cstdint>

#include "op/tensor_desc.h"

namespace aicf {

// Dimensions of a result, outermost first, each with the stride (in elements) of every operand. Dimensions
// that all operands walk as one are merged, so a full match is one dimension; dimensions of size 1 are
// dropped.
template <int Operands>
struct StridedShape {
  int rank = 0;
  int64_t shape[kMaxRank] = {};
  int64_t strides[Operands][kMaxRank] = {};

  // Adds the next inner dimension.
  void append(int64_t size, const std::array<int64_t, Operands>& stride) {
    if (size == 1) return;
    if (rank > 0) {
      bool one_walk = true;
      for (int o = 0; o < Operands; ++o) one_walk &= strides[o][rank - 1] == stride[o] * size;
      if (one_walk) {
        shape[rank - 1] *= size;
        for (int o = 0; o < Operands; ++o) strides[o][rank - 1] = stride[o];
        return;
      }
    }
    shape[rank] = size;
    for (int o = 0; o < Operands; ++o) strides[o][rank] = stride[o];
    ++rank;
  }
};

// The stride of `operand` along dimension `d` of a result of `rank` dimensions: 0 where it broadcasts.
inline int64_t broadcast_stride(const TensorDesc& operand, int rank, int d) {
  const int own = d - (rank - operand.rank);
  return own < 0 || operand.shape[own] == 1 ? 0 : operand.strides[own];
}

}  // namespace aicf
