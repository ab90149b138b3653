// What becomes of the words that the ranks of an exchange have given.
#pragma once
#include <cstring>

#include "kernels/collective/mailbox.h"
#include "kernels/common/numeric.cuh"

namespace aicf::cuda::mailboxes {

template <class Word>
__device__ Word ones() {
  Word word;
  memset(&word, 0xff, sizeof word);
  return word;
}

// The words of all ranks, `at(rank)`, of which none waits for another.
template <class Word, class At>
__device__ __forceinline__ void read_all(Word (&words)[kMostNeighbours], int ranks, At at) {
#pragma unroll
  for (int rank = 0; rank < kMostNeighbours; ++rank)
    if (rank < ranks) words[rank] = at(rank);
}

// What becomes of them: they stay, one rank after the other.
template <class Word>
struct Rows {
  Word* y;
  int64_t words;

  template <class At>
  __device__ __forceinline__ void take(int64_t i, int ranks, bool here, At at) const {
    Word given[kMostNeighbours];
    read_all(given, ranks, at);
#pragma unroll
    for (int rank = 0; rank < kMostNeighbours; ++rank)
      if (rank < ranks) y[rank * words + i] = here ? given[rank] : ones<Word>();
  }
};

// Or the mean of the numbers in them, which are added up in the order of ranks.
template <class Word, class T>
struct Mean {
  static constexpr int kNumbers = sizeof(Word) / sizeof(T);
  static constexpr int kStored = kNumbers < kWidest<Compute<T>> ? kNumbers : kWidest<Compute<T>>;
  using Stored = Vec<Compute<T>, kStored>;
  Compute<T>* y;

  template <class At>
  __device__ __forceinline__ void take(int64_t i, int ranks, bool here, At at) const {
    Word given[kMostNeighbours];
    read_all(given, ranks, at);
    Compute<T> total[kNumbers];
#pragma unroll
    for (int rank = 0; rank < kMostNeighbours; ++rank) {
      if (rank >= ranks) break;
      Vec<T, kNumbers> numbers;
      memcpy(&numbers, &given[rank], sizeof(Word));
#pragma unroll
      for (int n = 0; n < kNumbers; ++n)
        total[n] = rank == 0 ? widen(numbers.at[n]) : total[n] + widen(numbers.at[n]);
    }
    // Of a power of two the inverse is exact, so that a product has the bits of the quotient.
    const auto count = static_cast<Compute<T>>(ranks), inverse = 1 / count;
    const bool is_exact = (ranks & (ranks - 1)) == 0;
#pragma unroll
    for (int n = 0; n < kNumbers; ++n) total[n] = is_exact ? total[n] * inverse : total[n] / count;
#pragma unroll
    for (int k = 0; k < kNumbers / kStored; ++k) {
      Stored mean;
#pragma unroll
      for (int n = 0; n < kStored; ++n) mean.at[n] = total[k * kStored + n];
      reinterpret_cast<Stored*>(y)[i * (kNumbers / kStored) + k] = here ? mean : ones<Stored>();
    }
  }
};

}  // namespace aicf::cuda::mailboxes
