// The product with one thread for each element of the result: the plainest, and the only one in f64.
#pragma once
#include "kernels/gemm/device/instructions.cuh"
#include "kernels/gemm/device/problem.cuh"
#include "kernels/gemm/device/shapes.h"

namespace aicf::gemm {

// As TensorCoreProduct, without shared memory; WZ is 1, and WA and WB say nothing.
template <class Format, class Shape, bool TRANS_A, bool TRANS_B, int WA, int WB, int WZ>
struct ElementProduct {
  template <class Epilogue, class Totals>
  static __device__ __forceinline__ void run(const Problem& p, const void* a, const void* b,
                                             const Epilogue& epilogue, const Totals& totals, unsigned char*) {
    using T = typename Format::Element;
    using C = typename Format::Wide;
    static_assert(WZ == 1, "a thread has one element");
    const long long a_step = TRANS_A ? p.a.leading : 1, b_step = TRANS_B ? 1 : p.b.leading;
    const Tiles<Shape::BM, Shape::BN> tiles(p);
    for (long long index = blockIdx.x; index < tiles.count; index += gridDim.x) {
      const auto place = tiles.place(p, index);
      const long long row = place.row + threadIdx.x / Shape::BN,
                      column = place.column + threadIdx.x % Shape::BN;
      const long long k = p.depth(place.member);
      if (row >= p.m) continue;
      const T* x = static_cast<const T*>(a) + p.a.start(place.member) + (TRANS_A ? row : row * p.a.leading);
      if (totals.wanted() && column == 0) {
        C sum = 0;
        for (long long l = 0; l < k; ++l) sum += Format::wide(x[l * a_step]);
        totals(place.member, row, sum);
      }
      if (column >= p.n) continue;
      const T* y =
          static_cast<const T*>(b) + p.b.start(place.member) + (TRANS_B ? column * p.b.leading : column);
      C z[1] = {0};
      for (long long l = 0; l < k; ++l) {
        const C left = Format::wide(x[l * a_step]), right = Format::wide(y[l * b_step]);
        if constexpr (sizeof(C) == sizeof(double))
          z[0] = fma(left, right, z[0]);
        else
          z[0] = fmaf(left, right, z[0]);
      }
      epilogue(place.member, z, row, column);
    }
  }
};

}  // namespace aicf::gemm
