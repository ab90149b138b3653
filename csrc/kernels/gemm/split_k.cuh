// Split-k products: the sums of each part of k go to the workspace, a second kernel adds them from the
// first part to the last and runs the epilogue.
#pragma once
#include "kernels/gemm/prebuilt.cuh"

namespace aicf::cuda {

// The sums of the parts, m x n each, and behind them those of rows of a, m each.
struct SplitK {
  float* sums;
  int64_t parts, depth;  // of k; the steps of each but the last

  __device__ __forceinline__ float* totals(const GemmProblem& p) const { return sums + parts * p.m * p.n; }
};

// The functors that device/problem.cuh asks for, of a product whose members are the parts.
struct KeepSums {
  const GemmProblem& p;
  float* sums;

  template <int W>
  __device__ __forceinline__ void operator()(const gemm::Member& member, const float (&z)[W], int64_t row,
                                             int64_t column) const {
    float* to = sums + (member.outer * p.m + row) * p.n + column;
    if constexpr (W % 4 == 0) {
#pragma unroll
      for (int w = 0; w < W; w += 4)
        *reinterpret_cast<float4*>(to + w) = make_float4(z[w], z[w + 1], z[w + 2], z[w + 3]);
    } else {
#pragma unroll
      for (int w = 0; w < W; ++w) to[w] = z[w];
    }
  }
};
struct KeepTotals {
  const GemmProblem& p;
  float* totals;

  __device__ __forceinline__ bool wanted() const { return p.bias_grad != nullptr; }
  __device__ __forceinline__ void operator()(const gemm::Member& member, int64_t row, float total) const {
    totals[member.outer * p.m + row] = total;
  }
};

template <class Shape, class Product>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kResident)
    split_k_kernel(const __grid_constant__ GemmProblem p, const SplitK split) {
  dependency_wait();
  extern __shared__ __align__(128) unsigned char shared[];
  gemm::Problem each = device_problem(p);
  each.batch = split.parts;
  each.whole_k = p.k;
  each.k = split.depth;
  each.a.outer = split.depth * (p.trans_a ? p.a.leading : 1);
  each.b.outer = split.depth * (p.trans_b ? 1 : p.b.leading);
  Product::run(each, p.a.data, p.b.data, KeepSums{p, split.sums}, KeepTotals{p, split.totals(p)}, shared);
}

constexpr int kAddThreads = 64;  // results are small: many blocks

// A thread adds the sums of W neighbours, those behind them the sums of a row of a.
template <class T, int W>
__global__ void __launch_bounds__(kAddThreads)
    add_split_k_kernel(const __grid_constant__ GemmProblem p, const SplitK split) {
  dependency_wait();
  const int64_t index = int64_t{blockIdx.x} * kAddThreads + threadIdx.x;
  const int64_t across = p.n / W, points = p.m * across;
  if (index < points) {
    const int64_t row = index / across, column = index % across * W;
    const float* from = split.sums + row * p.n + column;
    float z[W] = {};
#pragma unroll 16
    for (int64_t part = 0; part < split.parts; ++part) {
      const Vec<float, W> more = *reinterpret_cast<const Vec<float, W>*>(from + part * p.m * p.n);
#pragma unroll
      for (int w = 0; w < W; ++w) z[w] += more.at[w];
    }
    Finish<T>{p}(gemm::Member{0, 0}, z, row, column);
  } else if (p.bias_grad && index < points + p.m) {
    const int64_t row = index - points;
    const float* from = split.totals(p) + row;
    float total = 0;
#pragma unroll 16
    for (int64_t part = 0; part < split.parts; ++part) total += from[part * p.m];
    BiasGradient<T>{p}(gemm::Member{0, 0}, row, total);
  }
}

// As launch_widest, with k in one part or several; their sums are in the workspace.
template <class T, class Format, class Shape,
          template <class, class, bool, bool, int, int, int> class Product>
Status launch_split_k(const GemmProblem& p, const Division& division, const LaunchContext& ctx) {
  if (division.split_k == 1) return launch_widest<T, Format, Shape, Product>(p, ctx);
  const SplitK split{static_cast<float*>(ctx.workspace), division.split_k, division.depth};
  const auto run = [&](auto trans_a, auto trans_b, auto width) {
    constexpr bool kA = decltype(trans_a)::value, kB = decltype(trans_b)::value;
    constexpr int W = decltype(width)::value, kPoint = W < 4 ? W : 4;
    AICF_TRY(launch(ctx, product_grid<Shape>(p, division.split_k), Shape::kThreads,
                    gemm::SharedMemory<Shape, kA, kB>::kBytes,
                    split_k_kernel<Shape, Product<Format, Shape, kA, kB, W, W, W>>, p, split));
    const int64_t points = p.m * (p.n / kPoint) + (p.bias_grad ? p.m : 0);
    return launch(ctx, dim3(static_cast<unsigned>(ceil_div<int64_t>(points, kAddThreads))), kAddThreads, 0,
                  add_split_k_kernel<T, kPoint>, p, split);
  };
  const auto with_width = [&](auto width) {
    return with_transposes(p, [&](auto trans_a, auto trans_b) { return run(trans_a, trans_b, width); });
  };
  return rows_are_aligned<T>(p) ? with_width(std::integral_constant<int, kWidest<T>>{})
                                : with_width(std::integral_constant<int, 1>{});
}

}  // namespace aicf::cuda
