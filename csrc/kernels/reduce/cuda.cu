// reduce_sum: fixed order, no atomics. A sum that one block cannot carry is divided into parts (split.h),
// and a second kernel adds the parts.
#include <type_traits>

#include "kernels/common/numeric.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/common/strided_offsets.cuh"
#include "kernels/reduce/launch.h"
#include "kernels/reduce/split.h"

namespace aicf {
namespace {

using namespace cuda;

struct SumArguments {
  StridedShape<1> kept, summed;  // offsets in x of a result and of a term
  int64_t results, terms;
  Split split;
  double divisor;
};

template <class T>
struct Destination {
  T* y;
  Compute<T>* partial;  // [parts][results]; null where there is one part

  __device__ __forceinline__ void write(const SumArguments& s, int64_t part, int64_t result,
                                        Compute<T> sum) const {
    if (partial) {
      partial[part * s.results + result] = sum;
    } else {
      y[result] = narrow<T>(sum / static_cast<Compute<T>>(s.divisor));
    }
  }
  // Neighbouring results, of the only part.
  template <int W>
  __device__ __forceinline__ void write(const SumArguments& s, int64_t result,
                                        const Compute<T> (&sums)[W]) const {
    Vec<T, W> all;
#pragma unroll
    for (int w = 0; w < W; ++w) all.at[w] = narrow<T>(sums[w] / static_cast<Compute<T>>(s.divisor));
    *reinterpret_cast<Vec<T, W>*>(y + result) = all;
  }
};

// Rows: THREADS neighbours add the terms of one result, W at a time. blockIdx.y is the part. W > 1 needs
// terms that are neighbours, rows and parts that begin at multiples of 16 bytes.
template <class T, class Integer, int THREADS, int W>
__global__ void sum_rows_kernel(Destination<T> to, const T* x, const __grid_constant__ SumArguments s) {
  dependency_wait();
  constexpr int kPerBlock = kSumThreads / THREADS;
  const int64_t result = static_cast<int64_t>(blockIdx.x) * kPerBlock + threadIdx.x / THREADS;
  if (result >= s.results) return;  // whole groups: blocks of one group have no such result
  int64_t base[1];
  offsets(s.kept, static_cast<Integer>(result), base);
  const int64_t first = blockIdx.y * s.split.length;
  const int64_t end = first + s.split.length < s.terms ? first + s.split.length : s.terms;
  Compute<T> sum = 0;
  if constexpr (W > 1) {
    const T* row = x + base[0];
    Compute<T> sums[W] = {};
#pragma unroll 4
    for (int64_t term = first + threadIdx.x % THREADS * W; term + W <= end; term += THREADS * W) {
      const auto read = *reinterpret_cast<const Vec<T, W>*>(row + term);
#pragma unroll
      for (int w = 0; w < W; ++w) sums[w] += widen(read.at[w]);
    }
#pragma unroll
    for (int w = 0; w < W; ++w) sum += sums[w];
    const int64_t rest = end - (end - first) % W + threadIdx.x % THREADS;
    if (rest < end) sum += widen(row[rest]);
  } else {
#pragma unroll 4
    for (int64_t term = first + threadIdx.x % THREADS; term < end; term += THREADS) {
      int64_t at[1];
      offsets(s.summed, static_cast<Integer>(term), at);
      sum += widen(x[base[0] + at[0]]);
    }
  }
  if constexpr (THREADS > 1) sum = reduce_group<Add, THREADS>(sum);
  if (threadIdx.x % THREADS == 0) to.write(s, blockIdx.y, result, sum);
}

// Columns: a thread adds every kLanes-th term of W neighbouring results, or all of them. blockIdx.y is the
// part. W > 1 needs the neighbours of each term to lie in one place of 16 bytes.
template <class T, class Integer, int W, int kLanes>
__global__ void sum_columns_kernel(Destination<T> to, const T* x, const __grid_constant__ SumArguments s) {
  dependency_wait();
  using Sum = Compute<T>;
  constexpr int kThreads = kSumThreads / kLanes;
  const int thread = threadIdx.x % kThreads, lane = threadIdx.x / kThreads;
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kThreads * W, result = block + thread * W;
  Sum sums[W] = {};
  if (result < s.results) {
    int64_t base[1];
    offsets(s.kept, static_cast<Integer>(result), base);
    const int64_t first = blockIdx.y * s.split.length;
    const int64_t end = first + s.split.length < s.terms ? first + s.split.length : s.terms;
    const auto add = [&](auto offset_of) {
#pragma unroll 8
      for (int64_t term = first + lane; term < end; term += kLanes) {
        const auto read = *reinterpret_cast<const Vec<T, W>*>(x + base[0] + offset_of(term));
#pragma unroll
        for (int w = 0; w < W; ++w) sums[w] += widen(read.at[w]);
      }
    };
    if (s.summed.rank == 1) {  // without a division each
      add([step = s.summed.strides[0][0]](int64_t term) { return term * step; });
    } else {
      add([&](int64_t term) {
        int64_t at[1];
        offsets(s.summed, static_cast<Integer>(term), at);
        return at[0];
      });
    }
  }
  if constexpr (kLanes == 1) {
    if (result < s.results) to.write(s, result, sums);
  } else {
    __shared__ Sum of_lanes[kLanes][kThreads * W];
#pragma unroll
    for (int w = 0; w < W; ++w) of_lanes[lane][thread * W + w] = sums[w];
    __syncthreads();
    const int column = threadIdx.x;
    if (column >= kThreads * W || block + column >= s.results) return;
    Sum sum = of_lanes[0][column];
#pragma unroll
    for (int other = 1; other < kLanes; ++other) sum += of_lanes[other][column];
    to.write(s, blockIdx.y, block + column, sum);
  }
}

// Whether the results that 16 bytes hold are neighbours for each term, at multiples of 16 bytes.
template <class T>
bool columns_are_aligned(const T* x, const T* y, const SumAxes& axes) {
  return (reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) % 16 == 0 &&
         axes.kept[axes.kept_count - 1].size % kWidest<T> == 0;
}

// Whether the terms that 16 bytes hold are neighbours in each row and part, at multiples of 16 bytes.
template <class T>
bool rows_are_aligned(const T* x, const SumArguments& s) {
  constexpr int64_t kWide = kWidest<T>;
  if (reinterpret_cast<uintptr_t>(x) % 16 != 0 || s.split.length % kWide != 0) return false;
  if (s.summed.rank != 1 || s.summed.strides[0][0] != 1) return false;
  for (int d = 0; d < s.kept.rank; ++d)
    if (s.kept.strides[0][d] % kWide != 0) return false;
  return true;
}

// A warp adds the parts of one result.
template <class T>
__global__ void add_parts_kernel(T* y, const Compute<T>* partial, int64_t results, int64_t parts,
                                 double divisor) {
  dependency_wait();
  const int64_t result = static_cast<int64_t>(blockIdx.x) * (kSumThreads / kWarp) + threadIdx.x / kWarp;
  if (result >= results) return;
  Compute<T> sum = 0;
  for (int64_t part = threadIdx.x % kWarp; part < parts; part += kWarp)
    sum += partial[part * results + result];
  sum = reduce_warp<Add>(sum);
  if (threadIdx.x % kWarp == 0) y[result] = narrow<T>(sum / static_cast<Compute<T>>(divisor));
}

StridedShape<1> strided(const Axis* axes, int count) {
  StridedShape<1> shape;
  for (int i = 0; i < count; ++i) shape.append(axes[i].size, {axes[i].stride});
  return shape;
}

template <int value>
using Int = std::integral_constant<int, value>;

template <class T, class Integer>
Status run(const OpDesc& op, const LaunchContext& ctx, const SumAxes& axes, const SumArguments& s) {
  const T* x = op.inputs[0].ptr<const T>();
  T* y = op.outputs[0].ptr<T>();
  auto* partial = s.split.parts > 1 ? static_cast<Compute<T>*>(ctx.workspace) : nullptr;
  const Destination<T> to{y, partial};
  const auto grid = [&](int64_t per_block) {
    return dim3(static_cast<unsigned>(ceil_div(s.results, per_block)), static_cast<unsigned>(s.split.parts));
  };
  const auto columns = [&](auto width, auto lanes) {
    constexpr int kWidth = decltype(width)::value, kLanes = decltype(lanes)::value;
    return launch(ctx, grid(kSumThreads / kLanes * kWidth), kSumThreads, 0,
                  sum_columns_kernel<T, Integer, kWidth, kLanes>, to, x, s);
  };
  const auto of_width = [&](auto width) {
    const bool few = s.terms <= kFewTerms && s.split.parts == 1;
    return few ? columns(width, Int<1>{}) : columns(width, Int<kColumnLanes>{});
  };
  const auto rows = [&](auto threads, auto width) {
    constexpr int kThreads = decltype(threads)::value, kWidth = decltype(width)::value;
    return launch(ctx, grid(kSumThreads / kThreads), kSumThreads, 0,
                  sum_rows_kernel<T, Integer, kThreads, kWidth>, to, x, s);
  };
  if (!axes.inner_summed) {
    AICF_TRY(columns_are_aligned(x, y, axes) ? of_width(Int<kWidest<T>>{}) : of_width(Int<1>{}));
  } else if (s.terms <= kFewTerms) {
    AICF_TRY(rows(Int<1>{}, Int<1>{}));
  } else if (s.terms <= kLongestWarpRow) {
    AICF_TRY(rows(Int<kWarp>{}, Int<1>{}));
  } else {
    AICF_TRY(rows_are_aligned(x, s) ? rows(Int<kSumThreads>{}, Int<kWidest<T>>{})
                                    : rows(Int<kSumThreads>{}, Int<1>{}));
  }
  if (!partial) return Status::ok();
  const dim3 warps(static_cast<unsigned>(ceil_div<int64_t>(s.results, kSumThreads / kWarp)));
  return launch(ctx, warps, kSumThreads, 0, add_parts_kernel<T>, y, static_cast<const Compute<T>*>(partial),
                s.results, s.split.parts, s.divisor);
}

}  // namespace

Status reduce_sum_cuda(const OpDesc& op, const LaunchContext& ctx) {
  const SumAxes axes = sum_axes(op);
  if (axes.kept_size == 0) return Status::ok();
  const SumArguments s{strided(axes.kept, axes.kept_count),
                       strided(axes.summed, axes.summed_count),
                       axes.kept_size,
                       axes.summed_size,
                       sum_split(axes, op.inputs[0].dtype),
                       op.attrs.get(kDivisor)};
  return with_float_type(op.inputs[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return counts_in_32_bits(op.inputs[0].numel()) ? run<T, uint32_t>(op, ctx, axes, s)
                                                   : run<T, uint64_t>(op, ctx, axes, s);
  });
}

}  // namespace aicf
