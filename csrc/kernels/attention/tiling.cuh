// How the CUDA kernels divide a head. A block of threads owns kRows rows, queries or keys, 16 for each warp,
// and walks along the others kStep at a time; both lie in shared memory, padded to PADDED elements a row.
// Sums over the walk are kept for kColumns elements of a row; where a row has more, other blocks compute
// them.
#pragma once
#include <algorithm>
#include <initializer_list>

#include "kernels/attention/problem.h"
#include "kernels/common/launch.cuh"
#include "kernels/gemm/device/copies.cuh"

namespace aicf::cuda {

using gemm::commit_copies, gemm::wait_copies;

constexpr int kWarpRows = 16;

// ROWS x COLUMNS elements in shared memory. The padding of 16 bytes a row keeps rows aligned and spreads them
// over the banks.
template <class T, int ROWS, int COLUMNS>
struct Window {
  static constexpr int kRows = ROWS, kColumns = COLUMNS, kPitch = COLUMNS + kWidest<T>;
  static constexpr int kElements = ROWS * kPitch;
};

template <int WARPS_, int STEP_, int COLUMNS_>
struct Division {
  static constexpr int kWarps = WARPS_, kStep = STEP_, kColumns = COLUMNS_;
};

// By size of an element and of a padded row, so that four tiles fit in 99 KiB, the least that any chip has
// from sm_80 on, and the sums in registers.
template <int BYTES, int PADDED>
struct DivisionOf;
// clang-format off
template <> struct DivisionOf<2, 32> : Division<4, 32, 32> {};
template <> struct DivisionOf<2, 64> : Division<4, 32, 64> {};
template <> struct DivisionOf<2, 128> : Division<4, 32, 128> {};
template <> struct DivisionOf<2, 256> : Division<2, 32, 128> {};
template <> struct DivisionOf<4, 32> : Division<4, 32, 32> {};
template <> struct DivisionOf<4, 64> : Division<4, 32, 64> {};
template <> struct DivisionOf<4, 128> : Division<2, 32, 128> {};
template <> struct DivisionOf<4, 256> : Division<2, 16, 64> {};
template <> struct DivisionOf<8, 32> : Division<2, 16, 32> {};
template <> struct DivisionOf<8, 64> : Division<2, 16, 32> {};
template <> struct DivisionOf<8, 128> : Division<1, 16, 32> {};
template <> struct DivisionOf<8, 256> : Division<1, 8, 32> {};
// clang-format on

template <class T_, int PADDED_>
struct Tiling : DivisionOf<sizeof(T_), PADDED_> {
  using T = T_;
  using C = Compute<T>;
  static constexpr int kPadded = PADDED_;
  using Own = Window<T, Tiling::kWarps * kWarpRows, kPadded>;
  using Walked = Window<T, Tiling::kStep, kPadded>;
  static constexpr int kRows = Tiling::kWarps * kWarpRows, kThreads = Tiling::kWarps * kWarp;
  static constexpr int kPitch = Own::kPitch;
  static constexpr int kTiles = Tiling::kStep / 8;           // of 8 columns in the scores of a warp
  static constexpr int kColumnTiles = Tiling::kColumns / 8;  // in its sums

  // Loads rows from `row` on of a head; `wide` where all of it can be read 16 bytes at a time. All threads.
  template <class Tile>
  static __device__ __forceinline__ void load(T* shared, const Heads<const void*>& heads, int64_t b,
                                              int64_t h, int64_t row, int64_t rows, int64_t columns,
                                              bool wide) {
    const T* first = heads.of<const T>(b, h);
    if (wide)
      gemm::copy_window<Tile, kThreads, kWidest<T>>(shared, first, row, 0, rows, columns, heads.row);
    else
      gemm::copy_window<Tile, kThreads, 1>(shared, first, row, 0, rows, columns, heads.row);
  }
};

// Whether rows of all operands start at multiples of 16 bytes.
template <class T>
bool rows_are_wide(std::initializer_list<const Heads<const void*>*> operands) {
  return std::all_of(operands.begin(), operands.end(), [](const Heads<const void*>* each) {
    return reinterpret_cast<uintptr_t>(each->data) % 16 == 0 && each->batch % kWidest<T> == 0 &&
           each->head % kWidest<T> == 0 && each->row % kWidest<T> == 0;
  });
}

// The blocks of threads for `rows` rows of each of `heads`, and for parts of `columns` elements of a row; at
// least one part, which also writes what each row has once.
template <class S>
dim3 grid_of(int64_t heads, int64_t rows, int64_t columns) {
  const int64_t parts = ceil_div<int64_t>(columns, S::kColumns);
  return dim3(static_cast<unsigned>(heads * ceil_div<int64_t>(rows, S::kRows)),
              static_cast<unsigned>(parts < 1 ? 1 : parts));
}

// Calls f(Tiling) for the least padding that holds a query and a value; at most 256 elements.
template <class T, class F>
Status with_tiling(const AttentionProblem& p, F f) {
  const int64_t size = std::max(p.size, p.value_size);
  if (size <= 32) return f(Tiling<T, 32>{});
  if (size <= 64) return f(Tiling<T, 64>{});
  if (size <= 128) return f(Tiling<T, 128>{});
  return f(Tiling<T, 256>{});
}

}  // namespace aicf::cuda
