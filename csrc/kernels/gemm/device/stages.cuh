// The tiles of both operands on their way through shared memory, some steps of k ahead.
#pragma once
#include "kernels/gemm/device/copies.cuh"
#include "kernels/gemm/device/problem.cuh"
#include "kernels/gemm/device/shapes.h"

namespace aicf::gemm {

// The tiles of one operand that a thread copies, from step to step of k. EXTENT is BM or BN.
template <class Tile, bool ALONG_K, int EXTENT, int BK, int THREADS, int W, class T>
class OperandCopies {
  const T *own_, *operand_;
  long long pitch_;
  int extent_;  // of the tile, within the matrix

 public:
  // The tiles from `first` of `extent` elements of m or n on, of the matrix that begins at `start` of
  // `operand`.
  __device__ __forceinline__ OperandCopies(const void* operand, long long start, long long first,
                                           long long extent, long long pitch)
      : operand_(static_cast<const T*>(operand)), pitch_(pitch), extent_(within(extent, first, EXTENT)) {
    using Own = Share<Tile, THREADS, W>;
    own_ = operand_ + start + Own::row() * pitch + Own::column() + (ALONG_K ? first * pitch : first);
  }

  __device__ __forceinline__ bool inside() const { return extent_ == EXTENT; }

  // Starts copying the next tile; `next_part` where not all of it lies within the matrix, but `k` steps.
  __device__ __forceinline__ void next(T* shared) {
    copy_whole<Tile, THREADS, W>(shared, own_, pitch_);
    own_ += ALONG_K ? BK : BK * pitch_;
  }
  __device__ __forceinline__ void next_part(T* shared, int k) {
    if (extent_ == 0) return;  // without columns b holds nothing: only totals are asked for
    copy_part<Tile, THREADS, W>(shared, own_, operand_, pitch_, ALONG_K ? extent_ : k, ALONG_K ? k : extent_);
    own_ += ALONG_K ? BK : BK * pitch_;
  }
};

// The tiles of both operands at `place`, through Shape::STAGES slots of shared memory.
template <class Shape, bool TRANS_A, bool TRANS_B, int WA, int WB, class T>
class Stages {
  using Shared = SharedMemory<Shape, TRANS_A, TRANS_B>;
  using A = typename Shared::A;
  using B = typename Shared::B;
  OperandCopies<A, !TRANS_A, Shape::BM, Shape::BK, Shape::kThreads, WA, T> a_;
  OperandCopies<B, TRANS_B, Shape::BN, Shape::BK, Shape::kThreads, WB, T> b_;
  T* memory_;
  bool inside_;   // all rows of a's tile and all columns of b's
  int read_ = 0;  // the slot of the tiles that are multiplied

  // Starts copying the next tiles into a slot; `left` steps of k are still to be copied.
  __device__ __forceinline__ void fill(int slot, long long left) {
    T* stage = memory_ + slot * Shared::kStage;
    if (inside_ && left >= Shape::BK) {
      a_.next(stage);
      b_.next(stage + A::kElements);
    } else if (left > 0) {
      const int k = left < Shape::BK ? static_cast<int>(left) : Shape::BK;
      a_.next_part(stage, k);
      b_.next_part(stage + A::kElements, k);
    }
    commit_copies();  // an empty group too: wait_copies counts groups
  }

 public:
  // Starts copying the first STAGES - 1 tiles of `k` steps.
  template <class Place>
  __device__ __forceinline__ Stages(const Problem& p, const Place& place, long long k, const void* a,
                                    const void* b, T* memory)
      : a_(a, p.a.start(place.member), place.row, p.m, p.a.leading),
        b_(b, p.b.start(place.member), place.column, p.n, p.b.leading),
        memory_(memory),
        inside_(a_.inside() && b_.inside()) {
#pragma unroll 1
    for (int s = 0; s < Shape::STAGES - 1; ++s) fill(s, k - s * Shape::BK);
  }

  // Starts copying the next tiles into the slot that was given up; `left` steps of k are still to be
  // multiplied.
  __device__ __forceinline__ void fetch_ahead(long long left) {
    fill(read_ == 0 ? Shape::STAGES - 1 : read_ - 1, left - (Shape::STAGES - 1) * Shape::BK);
  }
  // The tiles that are multiplied: a's, and b's behind them.
  __device__ __forceinline__ const T* current() const { return memory_ + read_ * Shared::kStage; }
  __device__ __forceinline__ void advance() { read_ = read_ + 1 == Shape::STAGES ? 0 : read_ + 1; }
  // Until the oldest tiles that are not read are there for all threads; the last ones are given up then.
  __device__ __forceinline__ void wait() const {
    wait_copies<Shape::STAGES - 2>();
    __syncthreads();
  }
};

}  // namespace aicf::gemm
