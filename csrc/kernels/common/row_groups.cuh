// Kernels that take one row after the other: a warp has a row, or a block where rows are long.
#pragma once
#include <utility>

#include "kernels/common/numeric.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/common/split.h"
#include "kernels/eltwise/ops.h"  // scalar::exp

namespace aicf::cuda {

constexpr int kRowThreads = 256;  // of a block, whether its warps have rows of their own or not

// body(row) for each row of the group of THREADS that this thread belongs to; the whole group calls it
// together.
template <int THREADS, class Body>
__device__ __forceinline__ void for_each_row(int64_t rows, Body body) {
  constexpr int kGroups = kRowThreads / THREADS;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kGroups;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kGroups + threadIdx.x / THREADS; row < rows;
       row += step)
    body(row);
}

// body(i) for each element of a row that this thread of its group has. The same in every loop over a row, so
// a thread that writes an element is the one that has read it.
template <int THREADS, class Body>
__device__ __forceinline__ void for_each_element(int64_t length, Body body) {
  for (int64_t i = threadIdx.x % THREADS; i < length; i += THREADS) body(i);
}

// Sum of term(i) over a row; all THREADS get it.
template <int THREADS, class C, class Term>
__device__ __forceinline__ C sum_of_row(int64_t length, Term term) {
  C sum = 0;
  for_each_element<THREADS>(length, [&](int64_t i) { sum += term(i); });
  return reduce_group<Add, THREADS>(sum);
}

// exp(x - largest) of a row, and their sum, at least 1. NaN if any x is NaN or +infinity, or all are
// -infinity: so are torch's softmax and log_softmax.
template <class C>
struct RowExponentials {
  C largest, sum;
  template <class T>
  __device__ __forceinline__ C operator()(T x) const {
    return scalar::exp(widen(x) - largest);
  }
};

template <int THREADS, class T>
__device__ __forceinline__ RowExponentials<Compute<T>> row_exponentials(const T* x, int64_t length) {
  using C = Compute<T>;
  RowExponentials<C> row{-static_cast<C>(INFINITY), 0};
  for_each_element<THREADS>(length, [&](int64_t i) { row.largest = Max{}(row.largest, widen(x[i])); });
  row.largest = reduce_group<Max, THREADS>(row.largest);
  row.sum = sum_of_row<THREADS, C>(length, [&](int64_t i) { return row(x[i]); });
  return row;
}

// Enqueues the kernel with a warp a row, or the one with a block a row. Nothing where there are no elements.
template <class... Parameters, class... Arguments>
Status launch_rows(const LaunchContext& ctx, int64_t rows, int64_t length, void (*of_warps)(Parameters...),
                   void (*of_blocks)(Parameters...), Arguments&&... arguments) {
  if (rows * length == 0) return Status::ok();
  const bool warps = length <= kLongestWarpRow;
  return launch(ctx, grid_stride_blocks(rows * (warps ? kWarp : kRowThreads), kRowThreads), kRowThreads, 0,
                warps ? of_warps : of_blocks, std::forward<Arguments>(arguments)...);
}

}  // namespace aicf::cuda
