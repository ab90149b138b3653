// The tiles of one operand on their way to a group of threads, four floats at a time.
#pragma once
#include "kernels/gemm/device/copies.cuh"
#include "kernels/gemm/device/shapes.h"

namespace aicf::gemm {

// What the `thread`-th of THREADS threads brings of every tile. EXTENT is BM or BN; with ALONG_K the matrix
// has its rows along k, and they are transposed on their way: through registers, since copies in the
// background would move single floats. W neighbours are read at once.
template <class Tile, bool ALONG_K, int EXTENT, int BK, int THREADS, int W>
class GroupOperand {
 public:
  static constexpr bool kThroughRegisters = ALONG_K;
  static constexpr int kPieces = EXTENT * BK / 4 / THREADS;

 private:
  static constexpr int kAcross = (ALONG_K ? BK : EXTENT) / 4, kDown = THREADS / kAcross;
  static constexpr int kTurns = ALONG_K && kDown % 32 != 0 ? 2 : 1;  // of rows, before the exchange repeats
  static_assert(THREADS % kAcross == 0 && (ALONG_K ? EXTENT : BK) % kDown == 0 && W <= 4,
                "every thread brings as much");
  static_assert(!ALONG_K || kDown % 16 == 0, "rows are exchanged within 32");

  const float *next_, *operand_;
  long long pitch_;
  int row_, column_;               // of the first piece, in the matrix's order
  int extent_;                     // of the tile, within the matrix
  SharedAddress to_[kTurns];       // of the first pieces, in the first stage
  float values_[kPieces][4] = {};  // ALONG_K: between `start` and `write`

  __device__ __forceinline__ static constexpr int shift(int piece) {
    return piece / kTurns * kTurns * kDown * (ALONG_K ? 1 : Tile::kPitch) * 4;
  }
  __device__ __forceinline__ SharedAddress target(int piece, int stage) const {
    return to_[piece % kTurns] + shift(piece) + stage;
  }
  __device__ __forceinline__ const float* source(int piece) const { return next_ + piece * kDown * pitch_; }

  __device__ __forceinline__ void bring(int piece, int stage) {
    const float* from = source(piece);
    if constexpr (!ALONG_K) {
#pragma unroll
      for (int w = 0; w < 4; w += W) copy_async<4 * W>(target(piece, stage) + 4 * w, from + w, 4 * W);
    } else if constexpr (W == 4) {
      const float4 v = *reinterpret_cast<const float4*>(from);
      values_[piece][0] = v.x, values_[piece][1] = v.y, values_[piece][2] = v.z, values_[piece][3] = v.w;
    } else {
#pragma unroll
      for (int w = 0; w < 4; ++w) values_[piece][w] = from[w];
    }
  }

  // As `bring`, of a tile of which only `rows` and `columns` lie within the matrix; the rest becomes zero.
  __device__ __forceinline__ void bring_part(int piece, int stage, int rows, int columns) {
    const int there = row_ + piece * kDown < rows ? columns - column_ : 0;
    const float* from = there > 0 ? source(piece) : operand_;
    if constexpr (!ALONG_K) {
#pragma unroll
      for (int w = 0; w < 4; w += W) {
        const int left = there - w, valid = left <= 0 ? 0 : left < W ? left : W;
        copy_async<4 * W>(target(piece, stage) + 4 * w, valid > 0 ? from + w : operand_, 4 * valid);
      }
    } else {
#pragma unroll
      for (int w = 0; w < 4; ++w) values_[piece][w] = w < there ? from[w] : 0;
    }
  }

 public:
  // The tiles from `first` of `extent` elements of m or n on and from step `k` on, of the matrix that begins
  // at `start` of `operand`. `tile` is the first stage's.
  __device__ __forceinline__ GroupOperand(int thread, const void* operand, long long start, long long first,
                                          long long extent, long long pitch, int k, SharedAddress tile)
      : operand_(static_cast<const float*>(operand)),
        pitch_(pitch),
        row_(thread / kAcross),
        column_(thread % kAcross * 4),
        extent_(within(extent, first, EXTENT)) {
    next_ = operand_ + start + (ALONG_K ? first + row_ : k + row_) * pitch + (ALONG_K ? k : first) + column_;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int row = row_ + turn * kDown;
      to_[turn] = kept(tile + 4 * (ALONG_K ? column_ * Tile::kPitch + (row ^ Tile::kExchanged * (column_ / 4))
                                           : row * Tile::kPitch + column_));
    }
  }

  __device__ __forceinline__ bool inside() const { return extent_ == EXTENT; }

  // Starts bringing the next tile to the stage so many bytes from the first one: all of it lies in the
  // matrix.
  __device__ __forceinline__ void start_whole(int stage) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) bring(piece, stage);
  }
  // As start_whole, where `left` steps of k, one or more, and perhaps not the whole extent lie in the matrix.
  __device__ __forceinline__ void start_part(int stage, long long left) {
    if (extent_ == 0) return;  // without columns b holds nothing: only totals are asked for
    const int k = left < BK ? static_cast<int>(left) : BK;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
      bring_part(piece, stage, ALONG_K ? extent_ : k, ALONG_K ? k : extent_);
  }
  // The next tile is that so many steps of k further.
  __device__ __forceinline__ void advance(int steps) { next_ += ALONG_K ? steps : steps * pitch_; }
  // Writes a piece of what came through registers.
  __device__ __forceinline__ void write(int piece, int stage) const {
#pragma unroll
    for (int w = 0; w < 4; ++w) write_one(target(piece, stage) + 4 * w * Tile::kPitch, values_[piece][w]);
  }
};

// Of each step of k, the COUNT elements of an operand's tile that the `thread`-th of them multiplies: four
// neighbours at a time, those of the next thread behind them.
template <class Tile, int EXTENT, int COUNT>
struct GroupFragment {
  static constexpr int kThreads = EXTENT / COUNT;
  static_assert(COUNT == 4 || kThreads >= 8, "what is exchanged are neighbouring threads");
  static __device__ __forceinline__ int position(int thread, int j) {
    return (j / 4 * kThreads + thread) * 4 + j % 4;
  }
  // `first` is the address of position(thread, 0) of the first row.
  static __device__ __forceinline__ void read(float (&out)[COUNT], SharedAddress first, int k) {
    const SharedAddress from = exchanged(first, 4 * Tile::kExchanged * (k / 4)) + 4 * k * Tile::kPitch;
#pragma unroll
    for (int j = 0; j < COUNT; j += 4) {
      const float4 v = read_four(from + 4 * j * kThreads);
      out[j] = v.x, out[j + 1] = v.y, out[j + 2] = v.z, out[j + 3] = v.w;
    }
  }
};

}  // namespace aicf::gemm
