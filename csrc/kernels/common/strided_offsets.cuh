// Where one element of a result lies in operands that have strides of their own, on the device.
#pragma once
#include "kernels/common/strided_shape.h"

namespace aicf::cuda {

// `i` counts the elements of the result. `Integer` is 32 bits wide where the result is small enough: a
// 64-bit division costs several times as much. The outermost dimension needs none, so a full match costs no
// division at all.
template <class Integer, int Operands>
__device__ __forceinline__ void offsets(const StridedShape<Operands>& s, Integer i,
                                        int64_t (&out)[Operands]) {
#pragma unroll
  for (int o = 0; o < Operands; ++o) out[o] = 0;
  for (int d = s.rank - 1; d > 0; --d) {
    const Integer size = static_cast<Integer>(s.shape[d]);
    const Integer quotient = i / size;
    const int64_t at = static_cast<int64_t>(i - quotient * size);
#pragma unroll
    for (int o = 0; o < Operands; ++o) out[o] += at * s.strides[o][d];
    i = quotient;
  }
#pragma unroll
  for (int o = 0; o < Operands; ++o) out[o] += static_cast<int64_t>(i) * s.strides[o][0];
}

// Whether a result of `n` elements can be counted in 32 bits.
inline bool counts_in_32_bits(int64_t n) { return n <= INT32_MAX; }

}  // namespace aicf::cuda
