// How matrices come into shared memory: in the background, each thread the same share of every window.
#pragma once
#include "kernels/gemm/device/instructions.cuh"

namespace aicf::gemm {

// Which elements of a window of Tile::kRows x Tile::kColumns a thread copies: W at a time, THREADS threads
// next to each other. All that differs from one to the next of them is known when this is compiled.
template <class Tile, int THREADS, int W>
struct Share {
  static constexpr int kAcross = Tile::kColumns / W;
  static constexpr int kCount = Tile::kRows * kAcross / THREADS;
  static_assert(kCount * THREADS == Tile::kRows * kAcross &&
                    (THREADS % kAcross == 0 || kAcross % THREADS == 0),
                "every thread copies as much");

  static __device__ __forceinline__ int row() { return threadIdx.x / kAcross; }
  static __device__ __forceinline__ int column() { return threadIdx.x % kAcross * W; }
  static __device__ __forceinline__ constexpr int down(int j) {
    return THREADS >= kAcross ? j * (THREADS / kAcross) : j / (kAcross / THREADS);
  }
  static __device__ __forceinline__ constexpr int right(int j) {
    return THREADS >= kAcross ? 0 : j % (kAcross / THREADS) * (THREADS * W);
  }
};

// Starts copying a thread's share of a window that lies within its matrix, with rows `pitch` elements apart.
// `own` is the thread's first element. W > 1 needs the window and its rows aligned to W elements.
template <class Tile, int THREADS, int W, class T>
__device__ __forceinline__ void copy_whole(T* shared, const T* own, long long pitch) {
  using Own = Share<Tile, THREADS, W>;
  constexpr int kBytes = static_cast<int>(sizeof(T)) * W, kAtOnce = Own::kCount < 8 ? Own::kCount : 8;
  shared += Own::row() * Tile::kPitch + Own::column();
#pragma unroll kAtOnce
  for (int j = 0; j < Own::kCount; ++j) {
    T* target = shared + Own::down(j) * Tile::kPitch + Own::right(j);
    const T* source = own + Own::down(j) * pitch + Own::right(j);
    if constexpr (kBytes >= 4)
      copy_async<kBytes>(target, source, kBytes);
    else
      *target = *source;
  }
}

// As copy_whole, of a window of which only `rows` and `columns` lie within the matrix; what lies outside
// becomes zero. `matrix` is any address that may be read.
template <class Tile, int THREADS, int W, class T>
__device__ __forceinline__ void copy_part(T* shared, const T* own, const T* matrix, long long pitch, int rows,
                                          int columns) {
  using Own = Share<Tile, THREADS, W>;
  constexpr int kBytes = static_cast<int>(sizeof(T)) * W;
  shared += Own::row() * Tile::kPitch + Own::column();
  const int below = rows - Own::row(), beside = columns - Own::column();
#pragma unroll 1  // a loop is jumped over; instructions in a row would each be skipped by a condition
  for (int j = 0; j < Own::kCount; ++j) {
    const int left = Own::down(j) < below ? beside - Own::right(j) : 0;
    const int valid = left <= 0 ? 0 : left < W ? left : W;
    T* target = shared + Own::down(j) * Tile::kPitch + Own::right(j);
    const T* source = valid > 0 ? own + Own::down(j) * pitch + Own::right(j) : matrix;
    if constexpr (kBytes >= 4)
      copy_async<kBytes>(target, source, valid * static_cast<int>(sizeof(T)));
    else
      *target = valid > 0 ? *source : T{};
  }
}

// How many of `length` elements lie from `from` on, at most `most`.
__device__ __forceinline__ int within(long long length, long long from, int most) {
  const long long left = length - from;
  return left >= most ? most : left > 0 ? static_cast<int>(left) : 0;
}

// All THREADS of the block start copying the window at (row, column) of the matrix `global` of rows x columns
// elements.
template <class Tile, int THREADS, int W, class T>
__device__ __forceinline__ void copy_window(T* shared, const T* global, long long row, long long column,
                                            long long rows, long long columns, long long pitch) {
  using Own = Share<Tile, THREADS, W>;
  const T* own = global + (row + Own::row()) * pitch + column + Own::column();
  if (rows - row >= Tile::kRows && columns - column >= Tile::kColumns)
    copy_whole<Tile, THREADS, W>(shared, own, pitch);
  else
    copy_part<Tile, THREADS, W>(shared, own, global, pitch, within(rows, row, Tile::kRows),
                                within(columns, column, Tile::kColumns));
}

}  // namespace aicf::gemm
