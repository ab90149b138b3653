// Checks on CUDA. Only what fails costs more than reading: the first place in order is found without atomics,
// so that the status is the same in every run.
#include "kernels/check/launch.h"
#include "kernels/check/params.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/reduce.cuh"

namespace aicf {
namespace {

using namespace cuda;

constexpr int64_t kNowhere = INT64_MAX;

struct Least {
  __device__ __forceinline__ int64_t operator()(int64_t x, int64_t y) const { return x < y ? x : y; }
};

// Where a status comes from and where it goes; `after` may be the memory of `before`. `visible` is the host's
// copy, or null: it is written only where something failed, the code last.
struct StatusPlaces {
  const int64_t* before;
  int64_t* after;
  int64_t* visible;

  // By one thread, after all others have read `before`.
  __device__ void write(int64_t code, int64_t position, int64_t what) const {
    after[0] = code;
    after[1] = position;
    after[2] = what;
    if (!visible || code == 0) return;
    visible[1] = position;
    visible[2] = what;
    __threadfence_system();
    *const_cast<volatile int64_t*>(visible) = code;
  }
  // What has failed before stays; `code` is that of tensor 0.
  __device__ void settle(int64_t code, const FoundPlace& place) const {
    if (before[0] != 0) {
      write(before[0], before[1], before[2]);
    } else if (place.tensor < 0) {
      write(0, 0, 0);
    } else {
      write(code + place.tensor, place.position, place.kind);
    }
  }
};

StatusPlaces status_places(const OpDesc& op, const LaunchContext& ctx) {
  return {op.in("status").ptr<const int64_t>(), op.out("status").ptr<int64_t>(), ctx.visible_status};
}

struct CheckedIndex {
  const void* data;
  Rows rows;
  IndexBounds bounds;
  int64_t per_block;  // elements
  int bytes;          // of an element

  __device__ int64_t at(int64_t i) const {
    const int64_t place = rows.place(i);
    if (bytes == 8) return static_cast<const int64_t*>(data)[place];
    if (bytes == 4) return static_cast<const int32_t*>(data)[place];
    return static_cast<const uint8_t*>(data)[place];
  }
};

// 84 bytes each; a kernel's arguments hold 32764 bytes, of which those that are there take time.
constexpr int kSomeIndices = 32, kMostIndices = 256;

template <int kMost>
struct IndexTable {
  int count;
  int64_t first_target;          // the number of the first one among all
  uint32_t first_blocks[kMost];  // of this launch, next to each other: each step of a search waits for a line
  alignas(CheckedIndex) unsigned char bytes[kMost * sizeof(CheckedIndex)];

  AICF_HD CheckedIndex& at(int i) { return reinterpret_cast<CheckedIndex*>(bytes)[i]; }
  AICF_HD const CheckedIndex& at(int i) const { return reinterpret_cast<const CheckedIndex*>(bytes)[i]; }
  AICF_HD int64_t first_block(int i) const { return first_blocks[i]; }
};

// The number of the tensor that this block has a part of.
template <class Table>
__device__ __forceinline__ int tensor_of_block(const Table& table) {
  int low = 0, high = table.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (table.first_block(middle) <= blockIdx.x ? low : high) = middle;
  }
  return low;
}

// The first of a thread's elements that are refused.
__device__ __forceinline__ int64_t first_refused(const CheckedIndex& target, int64_t begin, int64_t end) {
  int64_t at = kNowhere;
#pragma unroll 8
  for (int64_t i = begin + threadIdx.x; i < end; i += kIndexThreads)
    if (target.bounds.refuses(target.at(i)) && i < at) at = i;
  return at;
}

// The same of booleans without gaps, 16 of them at a time where they lie so.
__device__ __forceinline__ int64_t first_true(const CheckedIndex& target, int64_t begin, int64_t end) {
  const auto* data = static_cast<const uint8_t*>(target.data) + begin;
  const int64_t vectors = reinterpret_cast<uintptr_t>(data) % 16 == 0 ? (end - begin) / 16 : 0;
  const auto* words = reinterpret_cast<const uint4*>(data);
  int64_t at = kNowhere;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < vectors; i += kIndexThreads) {
    const uint4 four = words[i];
    if ((four.x | four.y | four.z | four.w) != 0 && at == kNowhere)
      for (int64_t j = 16 * i + 15; j >= 16 * i; --j)
        if (target.bounds.refuses(data[j])) at = begin + j;
  }
  const int64_t rest = first_refused(target, begin + 16 * vectors, end);
  return rest < at ? rest : at;
}

// Block b of a target checks its part b. `found` is null where there is one block in all.
template <int kMost>
__global__ void __launch_bounds__(kIndexThreads)
    check_index_kernel(StatusPlaces status, FoundPlace* found,
                       const __grid_constant__ IndexTable<kMost> table, int64_t code) {
  dependency_wait();
  const int number = tensor_of_block(table);
  const CheckedIndex& target = table.at(number);
  const int64_t begin = (blockIdx.x - table.first_block(number)) * target.per_block;
  const int64_t left = target.rows.count - begin,
                end = begin + (left < target.per_block ? left : target.per_block);
  const bool booleans = target.bytes == 1 && target.rows.inner == target.rows.count && target.rows.step == 1;
  int64_t at = booleans ? first_true(target, begin, end) : first_refused(target, begin, end);
  if (__syncthreads_or(at != kNowhere)) at = reduce_group<Least, kIndexThreads>(at);
  if (threadIdx.x != 0) return;
  FoundPlace place{-1, 0, 0};
  if (at != kNowhere) place = {table.first_target + number, at, target.at(at)};
  if (found)
    found[blockIdx.x] = place;
  else
    status.settle(code, place);
}

struct CheckedTensor {
  const void* data;
  int64_t numel;
  int64_t first_block;  // of this launch
  FloatBits format;
  bool aligned;  // to 16 bytes
};

constexpr int kTableTensors = 500;  // 56 bytes each; a kernel's arguments hold 32764 bytes

struct CheckTable {
  int count;
  int64_t first_tensor;  // the number of the first one among all
  alignas(CheckedTensor) unsigned char bytes[kTableTensors * sizeof(CheckedTensor)];

  AICF_HD CheckedTensor& at(int i) { return reinterpret_cast<CheckedTensor*>(bytes)[i]; }
  AICF_HD const CheckedTensor& at(int i) const { return reinterpret_cast<const CheckedTensor*>(bytes)[i]; }
  AICF_HD int64_t first_block(int i) const { return at(i).first_block; }
};

// Whether any number in 16 bytes is not finite.
__device__ __forceinline__ bool any_not_finite(const FloatBits& format, uint4 words) {
  const uint32_t each[4] = {words.x, words.y, words.z, words.w};
  bool any = false;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (format.bytes == 8) {
      const auto high = static_cast<uint32_t>(format.exponent >> 32);
      any |= i % 2 == 1 && (each[i] & high) == high;
    } else if (format.bytes == 4) {
      any |= format.not_finite(each[i]);
    } else {
      any |= format.not_finite(each[i] & 0xffffu) || format.not_finite(each[i] >> 16);
    }
  }
  return any;
}

// Block b of a tensor checks its part b of kCheckedPerBlock bytes.
__global__ void __launch_bounds__(kCheckThreads)
    check_finite_kernel(FoundPlace* found, const __grid_constant__ CheckTable table) {
  dependency_wait();
  const int low = tensor_of_block(table);
  const CheckedTensor& tensor = table.at(low);
  const FloatBits format = tensor.format;
  const int64_t per_block = kCheckedPerBlock / format.bytes;
  const int64_t begin = (blockIdx.x - tensor.first_block) * per_block;
  const int64_t end = begin + per_block < tensor.numel ? begin + per_block : tensor.numel;

  bool any = false;
  int64_t rest = begin;  // what the vectors leave
  if (tensor.aligned) {
    const int64_t per_vector = 16 / format.bytes;
    rest = begin + (end - begin) / per_vector * per_vector;
    const auto* data = static_cast<const uint4*>(tensor.data);
    for (int64_t i = begin / per_vector + threadIdx.x; i < rest / per_vector; i += kCheckThreads)
      any |= any_not_finite(format, data[i]);
  }
  for (int64_t i = rest + threadIdx.x; i < end; i += kCheckThreads)
    any |= format.not_finite(format.at(tensor.data, i));

  int64_t at = kNowhere;
  if (__syncthreads_or(any)) {  // the same for the whole block
    for (int64_t i = begin + threadIdx.x; i < end; i += kCheckThreads)
      if (format.not_finite(format.at(tensor.data, i)) && i < at) at = i;
    at = reduce_group<Least, kCheckThreads>(at);
  }
  if (threadIdx.x != 0) return;
  if (at == kNowhere) {
    found[blockIdx.x].tensor = -1;
  } else {
    found[blockIdx.x] = {table.first_tensor + low, at, format.kind(format.at(tensor.data, at))};
  }
}

// One block: the blocks of the tensors lie in order, so the first that found something has the first place.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    first_found_kernel(StatusPlaces status, const FoundPlace* found, int64_t blocks, int64_t code) {
  dependency_wait();
  int64_t first = kNowhere;
  for (int64_t i = threadIdx.x; i < blocks; i += kThreads)
    if (found[i].tensor >= 0 && i < first) first = i;
  if (__syncthreads_or(first != kNowhere)) first = reduce_group<Least, kThreads>(first);
  if (threadIdx.x != 0) return;
  status.settle(code, first == kNowhere ? FoundPlace{-1, 0, 0} : found[first]);
}

// By a warp where each of its threads has a block.
Status settle_first(const OpDesc& op, const FoundPlace* found, int64_t blocks, const LaunchContext& ctx) {
  const bool few = blocks <= kWarp;
  return launch(ctx, 1, few ? kWarp : kIndexThreads, 0,
                few ? first_found_kernel<kWarp> : first_found_kernel<kIndexThreads>, status_places(op, ctx),
                found, blocks, op.attrs.get(kCode));
}

// Launches over at most kMost targets each.
template <int kMost>
Status check_indices(const OpDesc& op, FoundPlace* found, const LaunchContext& ctx) {
  const Tensors targets = op.ins("target");
  int64_t all_blocks = 0;
  for (size_t first = 0; first < targets.size(); first += kMost) {
    IndexTable<kMost> table;
    table.count = 0;
    table.first_target = static_cast<int64_t>(first);
    int64_t blocks = 0;
    for (size_t i = first; i < targets.size() && table.count < kMost; ++i) {
      const TensorDesc& target = targets[i];
      const int64_t own = index_blocks(target);
      table.first_blocks[table.count] = static_cast<uint32_t>(blocks);
      CheckedIndex* row = new (&table.at(table.count++)) CheckedIndex{
          target.data,
          {},
          IndexBounds(op, i),
          indices_per_block(target),
          static_cast<int>(dtype_size(target.dtype)),
      };
      rows_of(target, &row->rows);
      blocks += own;
    }
    if (blocks > 0)
      AICF_TRY(launch(ctx, static_cast<unsigned>(blocks), kIndexThreads, 0, check_index_kernel<kMost>,
                      status_places(op, ctx), found ? found + all_blocks : nullptr, table,
                      op.attrs.get(kCode)));
    all_blocks += blocks;
  }
  return Status::ok();
}

// One warp, whose lanes share the ranks: the least code, and of equal ones that of the first rank.
__global__ void check_ranks_kernel(StatusPlaces places, const int64_t* statuses, int64_t ranks,
                                   int64_t code) {
  dependency_wait();
  int64_t least = 0, position = 0, what = 0, of = ranks;
  for (int64_t rank = threadIdx.x; rank < ranks; rank += kWarp) {
    const int64_t* theirs = statuses + rank * kStatusNumbers;
    const int64_t numbers[] = {theirs[0], theirs[1], theirs[2]};
    if (numbers[0] == 0 || (least != 0 && numbers[0] >= least)) continue;
    least = numbers[0], position = numbers[1], what = numbers[2], of = rank;
  }
  int64_t best = least, first = of;
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    const int64_t other = __shfl_xor_sync(0xffffffffu, best, lanes);
    const int64_t rank = __shfl_xor_sync(0xffffffffu, first, lanes);
    if (other == 0 || (best != 0 && (other > best || (other == best && rank > first)))) continue;
    best = other, first = rank;
  }
  if (best == 0 ? threadIdx.x == 0 : of == first)
    places.write(best == 0 ? 0 : best + first * code, position, what);
}

}  // namespace

Status check_index_cuda(const OpDesc& op, const LaunchContext& ctx) {
  const int64_t blocks = index_blocks(op);
  auto* found = blocks == 1 ? nullptr : static_cast<FoundPlace*>(ctx.workspace);
  const size_t targets = op.ins("target").size();
  if (targets == 1)
    AICF_TRY(check_indices<1>(op, found, ctx));
  else if (targets <= kSomeIndices)
    AICF_TRY(check_indices<kSomeIndices>(op, found, ctx));
  else
    AICF_TRY(check_indices<kMostIndices>(op, found, ctx));
  if (blocks == 1) return Status::ok();
  return settle_first(op, found, blocks, ctx);
}

Status check_finite_cuda(const OpDesc& op, const LaunchContext& ctx) {
  auto* found = static_cast<FoundPlace*>(ctx.workspace);
  int64_t all_blocks = 0;
  const Tensors tensors = op.ins("x");
  for (size_t first = 0; first < tensors.size(); first += kTableTensors) {
    CheckTable table;
    table.count = 0;
    table.first_tensor = static_cast<int64_t>(first);
    int64_t blocks = 0;
    for (size_t i = first; i < tensors.size() && table.count < kTableTensors; ++i) {
      const TensorDesc& x = tensors[i];
      const bool aligned = reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
      new (&table.at(table.count++)) CheckedTensor{x.data, x.numel(), blocks, FloatBits(x.dtype), aligned};
      blocks += check_blocks(x);
    }
    if (blocks > 0)
      AICF_TRY(launch(ctx, static_cast<unsigned>(blocks), kCheckThreads, 0, check_finite_kernel,
                      found + all_blocks, table));
    all_blocks += blocks;
  }
  return settle_first(op, found, all_blocks, ctx);
}

Status check_ranks_cuda(const OpDesc& op, const LaunchContext& ctx) {
  const TensorDesc& of_ranks = op.in("of_ranks");
  return launch(ctx, 1, kWarp, 0, check_ranks_kernel, status_places(op, ctx), of_ranks.ptr<const int64_t>(),
                of_ranks.shape[0], op.attrs.get(kCode));
}

}  // namespace aicf
