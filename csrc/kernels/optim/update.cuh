// One launch that updates many tensors: a table of them travels as a kernel argument, and each block finds
// its own.
//
// Nothing on the host is read when the launch is replayed: the scalars of a group, and what it counts for
// each parameter, lie in device memory, and every block combines them itself, in f64.
#pragma once
#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/common/launch.cuh"
#include "kernels/common/numeric.cuh"
#include "kernels/optim/step.h"

namespace aicf::cuda {

constexpr int kUpdateThreads = 256;

// STATES: p, g and the optimizer's own. All of them but g have a new value, which may be the same memory.
template <int STATES, int SCALARS>
struct UpdateTensor {
  const void* old_values[STATES];
  void* new_values[STATES];  // that of g is null
  const void* scalars[SCALARS];
  int64_t numel;
  int64_t first_block;
  void* copy;      // of the new p as `copied`, f16 or bf16; null where there is none
  bool aligned;    // every address to 16 bytes
  DType gradient;  // the type of g's elements; a kernel whose tensors are all of one type looks at neither
  DType copied;
};

template <int STATES, int SCALARS, int CAPACITY>
struct UpdateTable {
  int count;
  UpdateTensor<STATES, SCALARS> tensors[CAPACITY];
};

// The last tensor that starts at this block or before.
template <class Table>
__device__ __forceinline__ int tensor_of_block(const Table& table, int64_t block) {
  int low = 0, high = table.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.tensors[middle].first_block <= block)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// The first `count` of W neighbours, or all of them in one access.
template <class T, int W>
__device__ __forceinline__ Vec<T, W> load(const void* tensor, int64_t first, int count, bool wide) {
  const T* from = static_cast<const T*>(tensor) + first;
  if (wide) return *reinterpret_cast<const Vec<T, W>*>(from);
  Vec<T, W> values;
#pragma unroll
  for (int i = 0; i < W; ++i) values.at[i] = i < count ? from[i] : T(0.0f);
  return values;
}

template <class T, int W>
__device__ __forceinline__ void store(void* tensor, int64_t first, int count, bool wide,
                                      const Vec<T, W>& values) {
  T* to = static_cast<T*>(tensor) + first;
  if (wide) {
    *reinterpret_cast<Vec<T, W>*>(to) = values;
  } else {
#pragma unroll
    for (int i = 0; i < W; ++i)
      if (i < count) to[i] = values.at[i];
  }
}

// Method is the optimizer: kStates, kScalars, Rule<C>, make_rule(scalars) and apply(rule, values). A thread
// updates as many neighbours as 16 bytes hold, ITEMS times, as far apart as a block is wide. MIXED: each g is
// of f32, f16 or bf16, and p may be copied, as its tensor says, and T is float.
template <class Method, class T, bool MIXED, int ITEMS, int CAPACITY>
__global__ void __launch_bounds__(kUpdateThreads)
    update_kernel(const __grid_constant__ UpdateTable<Method::kStates, Method::kScalars, CAPACITY> table,
                  const __grid_constant__ Method method, const int64_t* unless) {
  dependency_wait();
  if (skipped(unless)) return;
  static_assert(!MIXED || std::is_same_v<T, float>);
  using C = Compute<T>;
  using Rule = typename Method::template Rule<C>;
  constexpr int kStates = Method::kStates, kWide = kWidest<T>;
  __shared__ __align__(16) unsigned char shared[sizeof(Rule)];

  const auto& tensor = table.tensors[tensor_of_block(table, blockIdx.x)];
  const int64_t begin = ((blockIdx.x - tensor.first_block) * ITEMS * kUpdateThreads + threadIdx.x) * kWide;
  const auto first_of = [&](int item) { return begin + item * kUpdateThreads * kWide; };
  const auto count_of = [&](int item) {
    const int64_t left = tensor.numel - first_of(item);
    return left <= 0 ? 0 : left < kWide ? static_cast<int>(left) : kWide;
  };
  const auto is_wide = [&](int item) { return tensor.aligned && count_of(item) == kWide; };

  // The loads are on their way while the first thread makes the rule.
  Vec<T, kWide> values[ITEMS][kStates];
  [[maybe_unused]] Vec<uint16_t, kWide> halves[ITEMS];  // g of f16 or bf16; widened behind the barrier
  const bool is_half = MIXED && tensor.gradient != DType::F32;
#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    const int64_t first = first_of(item);
    const int count = count_of(item);
    const bool wide = is_wide(item);
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      if (s == 1 && is_half)
        halves[item] = load<uint16_t, kWide>(tensor.old_values[s], first, count, wide);
      else
        values[item][s] = load<T, kWide>(tensor.old_values[s], first, count, wide);
    }
  }
  if (threadIdx.x == 0) new (shared) Rule(method.template make_rule<C>(tensor.scalars));
  __syncthreads();
  const Rule rule = *reinterpret_cast<const Rule*>(shared);
  if constexpr (MIXED) {
    if (is_half) {
      const bool f16 = tensor.gradient == DType::F16;
#pragma unroll
      for (int item = 0; item < ITEMS; ++item)
#pragma unroll
        for (int i = 0; i < kWide; ++i) {
          const uint16_t bits = halves[item].at[i];
          values[item][1].at[i] = f16 ? widen(__ushort_as_half(bits)) : widen(__ushort_as_bfloat16(bits));
        }
    }
  }

#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      C element[kStates];
#pragma unroll
      for (int s = 0; s < kStates; ++s) element[s] = widen(values[item][s].at[i]);
      Method::apply(rule, element);
#pragma unroll
      for (int s = 0; s < kStates; ++s) values[item][s].at[i] = narrow<T>(element[s]);
    }
    const int64_t first = first_of(item);
    const int count = count_of(item);
    const bool wide = is_wide(item);
#pragma unroll
    for (int s = 0; s < kStates; ++s)
      if (s != 1) store(tensor.new_values[s], first, count, wide, values[item][s]);
    if constexpr (MIXED) {
      if (!tensor.copy) continue;
      const bool f16 = tensor.copied == DType::F16;
#pragma unroll
      for (int i = 0; i < kWide; ++i) {
        const float p = values[item][0].at[i];
        halves[item].at[i] =
            f16 ? __half_as_ushort(narrow<__half>(p)) : __bfloat16_as_ushort(narrow<__nv_bfloat16>(p));
      }
      store(tensor.copy, first, count, wide, halves[item]);
    }
  }
}

// From so many elements on a block has more of them than a thread reads at once: there are blocks enough, and
// each makes its rule anew.
constexpr int64_t kManyElements = 1 << 21;

template <class Method, class T, bool MIXED, int ITEMS, int CAPACITY>
Status launch_update(const LaunchContext& ctx, const Method& method,
                     const std::vector<UpdateTensor<Method::kStates, Method::kScalars>>& tensors,
                     size_t begin, size_t end) {
  constexpr int64_t kPerBlock = kUpdateThreads * kWidest<T> * ITEMS;
  UpdateTable<Method::kStates, Method::kScalars, CAPACITY> table;
  table.count = static_cast<int>(end - begin);
  int64_t blocks = 0;
  for (size_t i = begin; i < end; ++i) {
    auto& tensor = table.tensors[i - begin] = tensors[i];
    tensor.first_block = blocks;
    blocks += ceil_div(tensor.numel, kPerBlock);
  }
  return launch(ctx, static_cast<unsigned>(blocks), kUpdateThreads, 0,
                update_kernel<Method, T, MIXED, ITEMS, CAPACITY>, table, method, ctx.unless);
}

template <class Method, class T, bool MIXED, int CAPACITY>
Status launch_part(const LaunchContext& ctx, const Method& method,
                   const std::vector<UpdateTensor<Method::kStates, Method::kScalars>>& tensors, size_t begin,
                   size_t end) {
  int64_t elements = 0;
  for (size_t i = begin; i < end; ++i) elements += tensors[i].numel;
  if constexpr (std::is_same_v<T, float>)
    if (elements >= kManyElements)
      return launch_update<Method, T, MIXED, 2, CAPACITY>(ctx, method, tensors, begin, end);
  return launch_update<Method, T, MIXED, 1, CAPACITY>(ctx, method, tensors, begin, end);
}

// Small tables keep a launch small; large ones hold what a kernel's arguments may (32764 bytes), and more
// tensors than that take more launches.
template <class Method, class T, bool MIXED>
Status update_all(const LaunchContext& ctx, const Method& method,
                  const std::vector<UpdateTensor<Method::kStates, Method::kScalars>>& tensors) {
  using Tensor = UpdateTensor<Method::kStates, Method::kScalars>;
  constexpr size_t kSmall = 16, kLarge = 30000 / sizeof(Tensor);
  if (tensors.empty()) return Status::ok();
  if (tensors.size() <= kSmall)
    return launch_part<Method, T, MIXED, static_cast<int>(kSmall)>(ctx, method, tensors, 0, tensors.size());
  for (size_t begin = 0; begin < tensors.size(); begin += kLarge) {
    const size_t end = std::min(begin + kLarge, tensors.size());
    AICF_TRY((launch_part<Method, T, MIXED, static_cast<int>(kLarge)>(ctx, method, tensors, begin, end)));
  }
  return Status::ok();
}

// The tensors of `updates` as the kernels' argument.
template <class Method>
std::vector<UpdateTensor<Method::kStates, Method::kScalars>> update_tensors(const Updates& updates) {
  std::vector<UpdateTensor<Method::kStates, Method::kScalars>> tensors;
  for (const TensorUpdate& update : updates.tensors) {
    UpdateTensor<Method::kStates, Method::kScalars> tensor{};
    tensor.numel = update.numel;
    tensor.gradient = update.gradient;
    tensor.copy = update.copy;
    tensor.copied = update.copied;
    tensor.aligned = reinterpret_cast<uintptr_t>(update.copy) % 16 == 0;
    for (int s = 0; s < Method::kStates; ++s) {
      tensor.old_values[s] = update.old_values[s];
      tensor.new_values[s] = update.new_values[s];
      for (const void* p : {tensor.old_values[s], static_cast<const void*>(tensor.new_values[s])})
        tensor.aligned &= reinterpret_cast<uintptr_t>(p) % 16 == 0;
    }
    for (int k = 0; k < Method::kScalars; ++k) tensor.scalars[k] = update.scalars[k];
    tensors.push_back(tensor);
  }
  return tensors;
}

}  // namespace aicf::cuda
