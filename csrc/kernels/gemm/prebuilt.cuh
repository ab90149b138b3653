// The prebuilt kernels of gemm and gemm_epilogue, as instances of the device code of products: an instance
// for each way in which the operands lie and for each width of access.
#pragma once
#include <climits>
#include <type_traits>

#include "kernels/common/launch.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/launch.h"

namespace aicf::cuda {

__device__ __forceinline__ gemm::Problem device_problem(const GemmProblem& p) {
  return {p.batch,
          p.inner_batch,
          p.m,
          p.n,
          p.k,
          {p.a.leading, p.a.outer, p.a.inner},
          {p.b.leading, p.b.outer, p.b.inner}};
}

// Of the formats and shapes of device/.
template <class T, class Shape, class Product>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kResident)
    product_kernel(const __grid_constant__ GemmProblem p) {
  dependency_wait();
  extern __shared__ __align__(128) unsigned char shared[];
  Product::run(device_problem(p), p.a.data, p.b.data, Finish<T>{p}, BiasGradient<T>{p}, shared);
}

// A block for each tile of `members` products.
template <class Shape>
dim3 product_grid(const GemmProblem& p, int64_t members) {
  const int64_t across = p.n > 0 ? ceil_div<int64_t>(p.n, Shape::BN) : 1;
  const int64_t tiles = ceil_div<int64_t>(p.m, Shape::BM) * across * members;
  return dim3(static_cast<unsigned>(tiles < INT_MAX ? tiles : INT_MAX));
}

template <class T, class Shape, class Product, int SHARED_BYTES>
Status launch_instance(const GemmProblem& p, const LaunchContext& ctx) {
  return launch(ctx, product_grid<Shape>(p, p.batch), Shape::kThreads, SHARED_BYTES,
                product_kernel<T, Shape, Product>, p);
}

// run(std::bool_constant<trans_a>, std::bool_constant<trans_b>)
template <class Run>
Status with_transposes(const GemmProblem& p, Run run) {
  using std::false_type, std::true_type;
  if (p.trans_a) return p.trans_b ? run(true_type{}, true_type{}) : run(true_type{}, false_type{});
  return p.trans_b ? run(false_type{}, true_type{}) : run(false_type{}, false_type{});
}

// `Product` is a class of device/, with accesses of W elements, and of WZ in the epilogue.
template <class T, class Format, class Shape, int W,
          template <class, class, bool, bool, int, int, int> class Product, int WZ = W>
Status launch_product(const GemmProblem& p, const LaunchContext& ctx) {
  if (p.batch * p.m == 0) return Status::ok();
  return with_transposes(p, [&](auto trans_a, auto trans_b) {
    constexpr bool kA = decltype(trans_a)::value, kB = decltype(trans_b)::value;
    return launch_instance<T, Shape, Product<Format, Shape, kA, kB, W, W, WZ>,
                           gemm::SharedMemory<Shape, kA, kB>::kBytes>(p, ctx);
  });
}

// With the widest accesses that the operands allow, 16 bytes or one element.
template <class T, class Format, class Shape,
          template <class, class, bool, bool, int, int, int> class Product>
Status launch_widest(const GemmProblem& p, const LaunchContext& ctx) {
  return rows_are_aligned<T>(p) ? launch_product<T, Format, Shape, kWidest<T>, Product>(p, ctx)
                                : launch_product<T, Format, Shape, 1, Product>(p, ctx);
}

// Those of panels.cuh, of one product.
template <class T, class Shape, class Product>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kResident)
    small_product_kernel(const __grid_constant__ SmallGemm p) {
  dependency_wait();
  extern __shared__ __align__(128) unsigned char shared[];
  const gemm::SmallProblem problem{p.m, p.n, p.k, {p.a.leading}, {p.b.leading}};
  Product::run(problem, p.a.data, p.b.data, Finish<T, SmallGemm>{p}, BiasGradient<T, SmallGemm>{p}, shared);
}

// Of small results, with the widest accesses too; epilogues get fewer neighbours.
template <class T, class Format, class Shape,
          template <class, class, bool, bool, int, int, int> class Product>
Status launch_panels(const GemmProblem& p, const LaunchContext& ctx) {
  if (!rows_are_aligned<T>(p)) return launch_product<T, Format, Shape, 1, Product>(p, ctx);
  constexpr int kW = kWidest<T>, kWZ = Shape::kNeighbours;
  if (!is_small(p) || p.m == 0) return launch_product<T, Format, Shape, kW, Product, kWZ>(p, ctx);
  const int64_t across = p.n > 0 ? ceil_div<int64_t>(p.n, Shape::BN) : 1;
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(p.m, Shape::BM) * across));
  return with_transposes(p, [&](auto trans_a, auto trans_b) {
    constexpr bool kA = decltype(trans_a)::value, kB = decltype(trans_b)::value;
    return launch(ctx, grid, Shape::kThreads, gemm::SharedMemory<Shape, kA, kB>::kBytes,
                  small_product_kernel<T, Shape, Product<Format, Shape, kA, kB, kW, kW, kWZ>>, small_gemm(p));
  });
}

}  // namespace aicf::cuda
