// What a mask says of the scores of a warp: 16 rows and 64 columns, laid out as in products.cuh.
#pragma once
#include "kernels/attention/scores.cuh"

namespace aicf::cuda {

// Which masks a kernel is compiled for: none, whether a query sees a key, what is added to the score.
enum class Masking { None, Seen, Added };

// Of one head. Rows are queries, or keys with KEYS_FIRST.
template <Masking MASKING, bool KEYS_FIRST, class T>
struct Mask {
  __device__ __forceinline__ Mask(const AttentionProblem&, int64_t, int64_t) {}
  __device__ __forceinline__ void read(int, int) {}
  __device__ __forceinline__ bool shows_all() const { return true; }
  __device__ __forceinline__ bool shows(int, int) const { return true; }
};

// A bit for each score. A lane reads 16 keys of one query at a time and gets what others have read for it.
template <bool KEYS_FIRST, class T>
struct Mask<Masking::Seen, KEYS_FIRST, T> {
  __device__ __forceinline__ Mask(const AttentionProblem& problem, int64_t b, int64_t h)
      : p(problem), data(p.mask.of<const unsigned char>(b, h)) {
    const auto strides = p.mask.batch | p.mask.head | p.mask.row;
    in_chunks = p.mask.column == 1 && (reinterpret_cast<uintptr_t>(p.mask.data) | strides) % kChunk == 0;
  }

  // All lanes of a warp.
  __device__ __forceinline__ void read(int row, int column) {
    const int r = lane() / 4, pair = lane() % 4;
    if constexpr (!KEYS_FIRST) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        unsigned long long all = chunk(row + r + 8 * half, column + kChunk * pair);
        all <<= kChunk * pair;
        all |= __shfl_xor_sync(0xffffffffu, all, 1);
        all |= __shfl_xor_sync(0xffffffffu, all, 2);
        bits[half] = all >> (2 * pair) & kAll;
      }
    } else {
      const unsigned own = chunk(column + lane(), row) | chunk(column + kWarp + lane(), row) << kChunk;
      bits[0] = bits[1] = 0;
#pragma unroll
      for (int tile = 0; tile < 4; ++tile)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const unsigned keys = __shfl_sync(0xffffffffu, own, tile * 8 + 2 * pair + e) >> r;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            bits[half] |= static_cast<unsigned long long>(keys >> 8 * half & 1) << (tile * 8 + e);
            bits[half] |= static_cast<unsigned long long>(keys >> (kChunk + 8 * half) & 1)
                          << (tile * 8 + kWarp + e);
          }
        }
    }
  }
  // Of all scores of the warp; those outside of the matrix are not seen.
  __device__ __forceinline__ bool shows_all() const {
    return __all_sync(0xffffffffu, (bits[0] & bits[1]) == kAll);
  }
  __device__ __forceinline__ bool shows(int tile, int e) const {
    return bits[e / 2] >> (tile * 8 + e % 2) & 1;
  }

 private:
  static constexpr int kChunk = 16;
  static constexpr unsigned long long kAll = 0x0303030303030303ull;  // this lane's two columns of each tile

  // A bit for each of the 16 keys from j on: 1 where query i sees it.
  __device__ __forceinline__ unsigned chunk(int i, int j) const {
    if (i >= p.queries || j >= p.keys) return 0;
    const unsigned char* from = data + i * p.mask.row + j * p.mask.column;
    unsigned seen = 0;
    if (in_chunks && j + kChunk <= p.keys) {
      const uint4 words = *reinterpret_cast<const uint4*>(from);
      seen = of_word(words.x) | of_word(words.y) << 4 | of_word(words.z) << 8 | of_word(words.w) << 12;
    } else {
      const int count = p.keys - j < kChunk ? static_cast<int>(p.keys) - j : kChunk;
#pragma unroll 4
      for (int k = 0; k < count; ++k) seen |= static_cast<unsigned>(from[k * p.mask.column] != 0) << k;
    }
    return seen;
  }
  // A bit for each byte that is not 0: the product moves the lowest bits of the four next to each other.
  static __device__ __forceinline__ unsigned of_word(unsigned word) {
    return (__vcmpne4(word, 0) & 0x01010101u) * 0x01020408u >> 24;
  }

  const AttentionProblem& p;
  const unsigned char* data;
  bool in_chunks;
  unsigned long long bits[2];
};

template <bool KEYS_FIRST, class T>
struct Mask<Masking::Added, KEYS_FIRST, T> {
  __device__ __forceinline__ Mask(const AttentionProblem& problem, int64_t b, int64_t h)
      : p(problem), first(b * p.mask.batch + h * p.mask.head) {}

  __device__ __forceinline__ void read(int row, int column) {
    i = KEYS_FIRST ? column : row;
    j = KEYS_FIRST ? row : column;
  }
  __device__ __forceinline__ bool shows_all() const { return true; }
  __device__ __forceinline__ bool shows(int, int) const { return true; }

  // The products of a tile become scores; what is outside of the matrix stays as it is.
  __device__ __forceinline__ void score(float (&products)[4], int tile, float scale) const {
    if (p.mask_kind == MaskKind::Added)
      add<T>(products, tile, scale);
    else
      add<float>(products, tile, scale);
  }

 private:
  template <class M>
  __device__ __forceinline__ void add(float (&products)[4], int tile, float scale) const {
    const M* mask = static_cast<const M*>(p.mask.data) + first;
    float summands[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = row_of(e), column = tile * 8 + column_of(e);
      const int query = i + (KEYS_FIRST ? column : row), key = j + (KEYS_FIRST ? row : column);
      summands[e] =
          query < p.queries && key < p.keys ? widen(mask[query * p.mask.row + key * p.mask.column]) : 0.0f;
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) products[e] = fmaf(products[e], scale, summands[e]);
  }

  const AttentionProblem& p;
  int64_t first;
  int i, j;
};

}  // namespace aicf::cuda
