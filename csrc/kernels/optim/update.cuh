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
// Blocks of f32 that a multiprocessor holds: 40 registers a thread. With four, memory waits for addresses.
constexpr int kUpdateBlocks = 6;

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
// updates as many neighbours as 16 bytes hold. MIXED: each g is of f32, f16 or bf16, and p may be copied, as
// its tensor says, and T is float.
template <class Method, class T, bool MIXED, int CAPACITY>
__global__ void __launch_bounds__(kUpdateThreads, std::is_same_v<T, float> ? kUpdateBlocks : 1)
    update_kernel(const __grid_constant__ UpdateTable<Method::kStates, Method::kScalars, CAPACITY> table,
                  const __grid_constant__ Method method, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  static_assert(!MIXED || std::is_same_v<T, float>);
  using C = Compute<T>;
  using Rule = typename Method::template Rule<C>;
  constexpr int kStates = Method::kStates, kWide = kWidest<T>;
  __shared__ __align__(16) unsigned char shared[sizeof(Rule)];

  const auto& tensor = table.tensors[tensor_of_block(table, blockIdx.x)];
  const int64_t first = ((blockIdx.x - tensor.first_block) * kUpdateThreads + threadIdx.x) * kWide;
  const int64_t left = tensor.numel - first;
  const int count = left <= 0 ? 0 : left < kWide ? static_cast<int>(left) : kWide;
  const bool wide = tensor.aligned && count == kWide;

  // In front of the loads: what is combined in f64 takes as many registers as what is loaded.
  if (threadIdx.x == 0) new (shared) Rule(method.template make_rule<C>(tensor.scalars));
  Vec<T, kWide> values[kStates];
  [[maybe_unused]] Vec<uint16_t, kWide> halves;  // g of f16 or bf16; widened behind the barrier
  const bool is_half = MIXED && tensor.gradient != DType::F32;
#pragma unroll
  for (int s = 0; s < kStates; ++s) {
    if (s == 1 && is_half)
      halves = load<uint16_t, kWide>(tensor.old_values[s], first, count, wide);
    else
      values[s] = load<T, kWide>(tensor.old_values[s], first, count, wide);
  }
  __syncthreads();
  const Rule rule = *reinterpret_cast<const Rule*>(shared);
  if constexpr (MIXED) {
    if (is_half) {
      const bool f16 = tensor.gradient == DType::F16;
#pragma unroll
      for (int i = 0; i < kWide; ++i)
        values[1].at[i] =
            f16 ? widen(__ushort_as_half(halves.at[i])) : widen(__ushort_as_bfloat16(halves.at[i]));
    }
  }

#pragma unroll
  for (int i = 0; i < kWide; ++i) {
    C element[kStates];
#pragma unroll
    for (int s = 0; s < kStates; ++s) element[s] = widen(values[s].at[i]);
    Method::apply(rule, element);
#pragma unroll
    for (int s = 0; s < kStates; ++s) values[s].at[i] = narrow<T>(element[s]);
  }

#pragma unroll
  for (int s = 0; s < kStates; ++s)
    if (s != 1) store(tensor.new_values[s], first, count, wide, values[s]);
  if constexpr (MIXED) {
    if (!tensor.copy) return;
    const bool f16 = tensor.copied == DType::F16;
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      const float p = values[0].at[i];
      halves.at[i] =
          f16 ? __half_as_ushort(narrow<__half>(p)) : __bfloat16_as_ushort(narrow<__nv_bfloat16>(p));
    }
    store(tensor.copy, first, count, wide, halves);
  }
}

template <class Method, class T, bool MIXED, int CAPACITY>
Status launch_update(const LaunchContext& ctx, const Method& method,
                     const std::vector<UpdateTensor<Method::kStates, Method::kScalars>>& tensors,
                     size_t begin, size_t end) {
  constexpr int64_t kPerBlock = kUpdateThreads * kWidest<T>;
  UpdateTable<Method::kStates, Method::kScalars, CAPACITY> table;
  table.count = static_cast<int>(end - begin);
  int64_t blocks = 0;
  for (size_t i = begin; i < end; ++i) {
    auto& tensor = table.tensors[i - begin] = tensors[i];
    tensor.first_block = blocks;
    blocks += ceil_div(tensor.numel, kPerBlock);
  }
  return launch(ctx, static_cast<unsigned>(blocks), kUpdateThreads, 0,
                update_kernel<Method, T, MIXED, CAPACITY>, table, method, ctx.predicate);
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
    return launch_update<Method, T, MIXED, static_cast<int>(kSmall)>(ctx, method, tensors, 0, tensors.size());
  for (size_t begin = 0; begin < tensors.size(); begin += kLarge) {
    const size_t end = std::min(begin + kLarge, tensors.size());
    AICF_TRY((launch_update<Method, T, MIXED, static_cast<int>(kLarge)>(ctx, method, tensors, begin, end)));
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
