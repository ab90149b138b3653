// What the kernels for groups of few channels share: vectors of channels, and elements of a line that go by.
#pragma once
#include <type_traits>

#include "kernels/common/launch.cuh"
#include "kernels/common/numeric.cuh"
#include "kernels/convolution/groups.h"

namespace aicf::cuda {

__device__ __forceinline__ float half_of(uint32_t word, int half, TypeTag<__nv_bfloat16>) {
  return __uint_as_float(half == 0 ? word << 16 : word & 0xffff0000u);
}
__device__ __forceinline__ float half_of(uint32_t word, int half, TypeTag<__half>) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(half == 0 ? word : word >> 16)));
}

// N neighbours as they are in memory, in words, in accesses of up to 16 bytes.
template <class T, int N>
struct Channels {
  static constexpr int kBytes = N * static_cast<int>(sizeof(T));
  using Word = std::conditional_t<(kBytes < 4), uint16_t, uint32_t>;
  static constexpr int kWords = kBytes / static_cast<int>(sizeof(Word)), kPiece = kWords < 4 ? kWords : 4;
  Word words[kWords];

  // Zeros where there is nothing.
  __device__ __forceinline__ void read(const T* from, bool is_there) {
#pragma unroll
    for (int i = 0; i < kWords; i += kPiece) {
      Vec<Word, kPiece> piece = {};
      if (is_there)
        piece = *reinterpret_cast<const Vec<Word, kPiece>*>(reinterpret_cast<const Word*>(from) + i);
#pragma unroll
      for (int j = 0; j < kPiece; ++j) words[i + j] = piece.at[j];
    }
  }
  __device__ __forceinline__ float widened(int i) const {
    if constexpr (sizeof(T) == 4)
      return __uint_as_float(words[i]);
    else
      return half_of(words[i / 2], i % 2, TypeTag<T>{});
  }
};

template <class T, int N>
__device__ __forceinline__ void write_channels(T* to, const float (&values)[N]) {
  constexpr int kPiece = N < kWidest<T> ? N : kWidest<T>;
#pragma unroll
  for (int i = 0; i < N; i += kPiece) {
    Vec<T, kPiece> piece;
#pragma unroll
    for (int j = 0; j < kPiece; ++j) piece.at[j] = narrow<T>(values[i + j]);
    *reinterpret_cast<Vec<T, kPiece>*>(to + i) = piece;
  }
}

// The elements of a line that kChain neighbours need, N channels each: step after step they move on by one.
// Those of kChain steps are read together.
template <class T, int N>
class Passing {
 public:
  // Element 0 of the line is number `line` of x, others are `stride` apart. The first that passes is number
  // `first` of the line, and the next one is `unit` on.
  __device__ __forceinline__ Passing(const T* x, int line, int stride, int size, int first, int unit)
      : x_(x),
        size_(size),
        at_(first),
        unit_(unit),
        place_(static_cast<unsigned>(line) + static_cast<unsigned>(first) * stride),
        step_(static_cast<unsigned>(unit) * stride) {
    Channels<T, N> read[kChain - 1];
#pragma unroll
    for (int i = 0; i < kChain - 1; ++i) next(true, read[i]);
#pragma unroll
    for (int i = 0; i < kChain - 1; ++i) put(i, read[i]);
  }
  // Those of the next `count` steps, of kChain at most.
  __device__ __forceinline__ void read(int count) {
#pragma unroll
    for (int i = 0; i < kChain; ++i) next(i < count, ahead_[i]);
  }
  // Step `i` of them: neighbour t has at(i, t).
  __device__ __forceinline__ void step(int i) { put((i + kChain - 1) % kChain, ahead_[i]); }
  __device__ __forceinline__ const float (&at(int i, int t) const)[N] { return elements_[(i + t) % kChain]; }

 private:
  __device__ __forceinline__ void next(bool is_wanted, Channels<T, N>& read) {
    const bool is_there = is_wanted && static_cast<unsigned>(at_) < static_cast<unsigned>(size_);
    read.read(x_ + place_, is_there);
    at_ += unit_;
    place_ += step_;
  }
  __device__ __forceinline__ void put(int i, const Channels<T, N>& read) {
#pragma unroll
    for (int n = 0; n < N; ++n) elements_[i][n] = read.widened(n);
  }

  const T* x_;
  int size_, at_, unit_;
  unsigned place_, step_;  // where at_ is
  float elements_[kChain][N];
  Channels<T, N> ahead_[kChain];
};

// What a thread has, as in GroupLanes.
template <int R, int S, int G>
struct LanesTag {
  static constexpr int kResults = R, kSources = S, kGroups = G == 0 ? 1 : G;
  static constexpr bool kAny = G == 0;
};

// Calls f(TypeTag<T>{}, LanesTag<...>{}) for the lanes that groups.cpp chooses among.
template <class F>
Status with_lanes(DType dtype, const GroupLanes& lanes, F&& f) {
  const auto with_type = [&](auto type) {
    constexpr bool is_wide = sizeof(typename decltype(type)::type) == 4;
    constexpr int kTwo = is_wide ? 2 : 4;
    switch (lanes.groups == 0 ? 0 : 10 * lanes.results + lanes.sources) {
      case 21:
        return f(type, LanesTag<2, 1, kTwo>{});
      case 12:
        return f(type, LanesTag<1, 2, kTwo>{});
      case 22:
        return f(type, LanesTag<2, 2, 2>{});
      case 44:
        return f(type, LanesTag<4, 4, 1>{});
      case 0:
        return f(type, LanesTag<1, 1, 0>{});
    }
    if constexpr (!is_wide) {
      if (lanes.groups == 8) return f(type, LanesTag<1, 1, 8>{});
    }
    return lanes.groups == 4 ? f(type, LanesTag<1, 1, 4>{}) : f(type, LanesTag<1, 1, 2>{});
  };
  return dtype == DType::F32 ? with_type(TypeTag<float>{}) : with_half_type(dtype, with_type);
}

}  // namespace aicf::cuda
