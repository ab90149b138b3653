// Cross entropy and its gradient: a warp a row, or a block a row where there are many classes.
#include "kernels/common/row_groups.cuh"
#include "kernels/loss/launch.h"
#include "kernels/loss/loss_parts.cuh"

namespace aicf {
namespace {

using namespace cuda;

constexpr int64_t kIgnored = -1;
constexpr int64_t kOutOfRange = -2;

__device__ __forceinline__ float log_of(float x) { return ::logf(x); }
__device__ __forceinline__ double log_of(double x) { return ::log(x); }

template <class C>
__device__ __forceinline__ C nan_of() {
  return static_cast<C>(__int_as_float(0x7fffffff));
}

// The class of a row, or one of the two marks.
__device__ __forceinline__ int64_t class_of(const CrossEntropyParams& p, const void* targets, int64_t row) {
  const int64_t target =
      p.wide_targets ? static_cast<const int64_t*>(targets)[row] : static_cast<const int32_t*>(targets)[row];
  if (target == p.ignore_index) return kIgnored;
  return target >= 0 && target < p.classes ? target : kOutOfRange;
}

// log softmax(x)[c] = x[c] - largest - log_sum.
template <class C>
struct RowStatistics {
  C largest, log_sum;
};

// All THREADS of a group get the result; they call this together.
template <int THREADS, class T>
__device__ __forceinline__ RowStatistics<Compute<T>> row_statistics(const T* x, int64_t classes) {
  const RowExponentials<Compute<T>> row = row_exponentials<THREADS>(x, classes);
  return {row.largest, log_of(row.sum)};
}

// The loss of one row whose class is in range; all THREADS get it.
template <int THREADS, class T>
__device__ __forceinline__ Compute<T> row_loss(const CrossEntropyParams& p, const T* x, int64_t target) {
  using C = Compute<T>;
  const RowStatistics<C> row = row_statistics<THREADS>(x, p.classes);
  const C hard = row.log_sum - (widen(x[target]) - row.largest);
  if (p.label_smoothing == 0) return hard;
  const C all =
      sum_of_row<THREADS, C>(p.classes, [&](int64_t c) { return row.log_sum - (widen(x[c]) - row.largest); });
  return static_cast<C>(1 - p.label_smoothing) * hard +
         static_cast<C>(p.label_smoothing / static_cast<double>(p.classes)) * all;
}

// Block b adds the rows of part b.
template <class T, int THREADS>
__global__ void __launch_bounds__(kLossThreads)
    cross_entropy_kernel(LossDestination<T> to, const T* logits, const void* targets,
                         const __grid_constant__ CrossEntropyParams p, int64_t length) {
  dependency_wait();
  using C = Compute<T>;
  constexpr int kGroups = kLossThreads / THREADS;
  const int64_t first = blockIdx.x * length, end = first + length < p.rows ? first + length : p.rows;
  C sum = 0;
  int64_t rows = 0;
  for (int64_t row = first + threadIdx.x / THREADS; row < end;
       row += kGroups) {  // the same row for a whole group
    const int64_t target = class_of(p, targets, row);
    if (target == kIgnored) continue;
    ++rows;
    sum += target == kOutOfRange ? nan_of<C>() : row_loss<THREADS>(p, logits + row * p.classes, target);
  }
  if (threadIdx.x % THREADS != 0) {  // one thread speaks for its group
    sum = 0;
    rows = 0;
  }
  sum = reduce_group<Add, kLossThreads>(sum);
  rows = reduce_group<Add, kLossThreads>(rows);
  if (threadIdx.x == 0) to.write(sum, rows);
}

// The number of rows that are not ignored; all threads of a block of THREADS get it.
template <int THREADS>
__device__ __forceinline__ int64_t count_rows(const CrossEntropyParams& p, const void* targets) {
  int64_t count = 0;
  for (int64_t row = threadIdx.x; row < p.rows; row += THREADS)
    count += class_of(p, targets, row) != kIgnored;
  return reduce_group<Add, THREADS>(count);
}

__global__ void __launch_bounds__(kLossThreads)
    count_rows_kernel(int64_t* out, const void* targets, const __grid_constant__ CrossEntropyParams p) {
  dependency_wait();
  const int64_t count = count_rows<kLossThreads>(p, targets);
  if (threadIdx.x == 0) *out = count;
}

// dlogits[c] = dloss / divisor * (softmax(x)[c] - q[c]), q the smoothed target distribution; in an ignored
// row 0, or NaN where softmax is NaN, as in torch. `counted` holds the number of rows that are not ignored;
// null where the block shall count them.
template <class T, int THREADS>
__global__ void __launch_bounds__(kRowThreads)
    cross_entropy_grad_kernel(T* dlogits, const T* dloss, const T* logits, const void* targets,
                              const int64_t* counted, const __grid_constant__ CrossEntropyParams p) {
  dependency_wait();
  using C = Compute<T>;
  double divisor = 1;
  if (p.mean) divisor = static_cast<double>(counted ? *counted : count_rows<kRowThreads>(p, targets));
  const C factor = static_cast<C>(static_cast<double>(widen(*dloss)) / divisor);
  const C rest = static_cast<C>(p.label_smoothing / static_cast<double>(p.classes));
  const C hit = static_cast<C>(1 - p.label_smoothing + p.label_smoothing / static_cast<double>(p.classes));
  for_each_row<THREADS>(p.rows, [&](int64_t row) {
    const T* x = logits + row * p.classes;
    T* dx = dlogits + row * p.classes;
    const int64_t target = class_of(p, targets, row);
    if (target == kOutOfRange) {
      for_each_element<THREADS>(p.classes, [&](int64_t c) { dx[c] = narrow<T>(nan_of<C>()); });
      return;
    }
    const RowStatistics<C> statistics = row_statistics<THREADS>(x, p.classes);
    for_each_element<THREADS>(p.classes, [&](int64_t c) {
      const C softmax = scalar::exp(widen(x[c]) - statistics.largest - statistics.log_sum);
      const C slope = target == kIgnored ? C(0) * softmax : factor * (softmax - (c == target ? hit : rest));
      dx[c] = narrow<T>(slope);
    });
  });
}

}  // namespace

Status cross_entropy_cuda(const OpDesc& op, const LaunchContext& ctx) {
  const CrossEntropyParams p = cross_entropy_params(op);
  const Split split = cross_entropy_split(p);
  return with_float_type(op.outputs[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const LossDestination<T> to = loss_destination<T>(op, ctx, split);
    auto* kernel =
        p.classes <= kLongestWarpRow ? cross_entropy_kernel<T, kWarp> : cross_entropy_kernel<T, kLossThreads>;
    AICF_TRY(launch(ctx, static_cast<unsigned>(split.parts), kLossThreads, 0, kernel, to,
                    op.in("logits").ptr<const T>(), static_cast<const void*>(op.in("target").data), p,
                    split.length));
    return add_loss_parts(ctx, to, split);
  });
}

Status cross_entropy_grad_cuda(const OpDesc& op, const LaunchContext& ctx) {
  const CrossEntropyParams p = cross_entropy_params(op);
  if (p.rows * p.classes == 0) return Status::ok();
  const void* targets = op.in("target").data;
  int64_t* counted = nullptr;
  if (counts_targets_first(p)) {
    counted = static_cast<int64_t*>(ctx.workspace);
    AICF_TRY(launch(ctx, 1, kLossThreads, 0, count_rows_kernel, counted, targets, p));
  }
  return with_float_type(op.outputs[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return launch_rows(ctx, p.rows, p.classes, cross_entropy_grad_kernel<T, kWarp>,
                       cross_entropy_grad_kernel<T, kRowThreads>, op.outputs[0].ptr<T>(),
                       op.in("dloss").ptr<const T>(), op.in("logits").ptr<const T>(), targets,
                       static_cast<const int64_t*>(counted), p);
  });
}

}  // namespace aicf
