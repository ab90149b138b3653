// A copy into another order of dimensions, box by box through shared memory: elements are read in the order
// in which they lie in x, and written in that of y. A box has runs of both, which may be made of several
// dimensions: pixels of three channels, or blocks of an image.
#pragma once
#include <algorithm>

#include "kernels/common/launch.cuh"
#include "kernels/copy/move.h"

namespace aicf::cuda {

constexpr int kBoxThreads = 256;
constexpr unsigned kBoxBlocks = 132 * 4;  // that a large chip has at once
constexpr int64_t kRun = 32;              // elements that follow each other, wanted in x and in y
constexpr int64_t kFullBox = 1024;        // elements that are wanted
constexpr int64_t kMostBox = 2048;

struct Boxes {
  struct Dim {
    uint32_t boxes, extent;  // of a box
    int64_t size, y_stride, x_stride;
  };
  struct Inner {             // a dimension of which a box has more than one element
    uint32_t extent, magic;  // for a division by multiplication
    int dim;
    uint32_t place;  // the distance in shared memory
    int stride;      // in x for reading, in y for writing
  };
  int rank, inner;
  Dim dims[kMaxRank];                          // outermost in y first
  Inner reading[kMaxRank], writing[kMaxRank];  // innermost first
  uint32_t elements;                           // of a box
  int64_t reach;                               // in x or in y, of a box; at most INT32_MAX
  int64_t count;
};

// Where a box begins, how many elements of each dimension are left from there, and whether no dimension ends
// in it.
struct BoxPlace {
  int64_t x, y;
  uint32_t left[kMaxRank];
  bool is_whole;
};

constexpr int kBoxEach = static_cast<int>(kMostBox) / kBoxThreads;  // elements of a thread

// One more element in 32, so that a power of two as distance reaches different banks.
__device__ __forceinline__ uint32_t skewed(uint32_t place) { return place + place / 32; }

// The sum of strides to element e of a box, and the sum of its distances in shared memory.
__device__ __forceinline__ int offset_of(const Boxes::Inner* dims, int count, uint32_t e, uint32_t& place) {
  int offset = 0;
  place = 0;
  for (int i = 0; i < count; ++i) {
    const uint32_t rest = __umulhi(e, dims[i].magic), digit = e - rest * dims[i].extent;
    e = rest;
    offset += static_cast<int>(digit) * dims[i].stride;
    place += digit * dims[i].place;
  }
  return offset;
}

// Whether the tensor has element e of this box.
__device__ __forceinline__ bool has(const Boxes::Inner* dims, int count, const BoxPlace& at, uint32_t e) {
  bool is_there = true;
  for (int i = 0; i < count; ++i) {
    const uint32_t rest = __umulhi(e, dims[i].magic);
    is_there &= e - rest * dims[i].extent < at.left[dims[i].dim];
    e = rest;
  }
  return is_there;
}

// Blocks stay: where the elements of a thread lie in a box is computed once.
template <class T>
__global__ void __launch_bounds__(kBoxThreads, 4)
    boxes_kernel(T* y, const T* x, const __grid_constant__ Boxes b, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  __shared__ T box[kMostBox + kMostBox / 32];
  __shared__ BoxPlace at;
  int from[kBoxEach], to[kBoxEach];
  uint32_t place[kBoxEach];
#pragma unroll
  for (int k = 0; k < kBoxEach; ++k) {
    const uint32_t e = threadIdx.x + k * kBoxThreads;
    uint32_t same;
    from[k] = offset_of(b.reading, b.inner, e, place[k]);
    to[k] = offset_of(b.writing, b.inner, e, same);
    place[k] = skewed(place[k]);
  }
  for (uint32_t number = blockIdx.x; number < b.count; number += gridDim.x) {
    if (threadIdx.x == 0) {
      uint32_t rest = number;
      at.x = at.y = 0;
      at.is_whole = true;
      for (int d = b.rank - 1; d >= 0; --d) {
        const uint32_t quotient = rest / b.dims[d].boxes;
        const int64_t first = static_cast<int64_t>(rest - quotient * b.dims[d].boxes) * b.dims[d].extent;
        rest = quotient;
        at.x += first * b.dims[d].x_stride;
        at.y += first * b.dims[d].y_stride;
        at.left[d] = static_cast<uint32_t>(min(b.dims[d].size - first, kMostBox));
        at.is_whole &= at.left[d] >= b.dims[d].extent;
      }
    }
    __syncthreads();  // which box is known, and the one before has been written
#pragma unroll
    for (int k = 0; k < kBoxEach; ++k) {
      const uint32_t e = threadIdx.x + k * kBoxThreads;
      if (e < b.elements && (at.is_whole || has(b.reading, b.inner, at, e)))
        box[place[k]] = x[at.x + from[k]];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kBoxEach; ++k) {
      const uint32_t e = threadIdx.x + k * kBoxThreads;
      if (e < b.elements && (at.is_whole || has(b.writing, b.inner, at, e))) y[at.y + to[k]] = box[skewed(e)];
    }
    __syncthreads();
  }
}

// The boxes of a move whose dimensions lie in the order of y's memory.
inline Boxes boxes_of(const Move& m) {
  Boxes b{};
  b.rank = m.shape.rank;
  int64_t extent[kMaxRank], box = 1;
  std::fill_n(extent, b.rank, 1);
  const auto grow = [&](int d, int64_t wanted) {
    const int64_t others = box / extent[d];
    wanted = std::min({wanted, m.shape.shape[d], std::max<int64_t>(1, kMostBox / others)});
    if (wanted <= extent[d]) return;
    extent[d] = ceil_div(m.shape.shape[d], ceil_div(m.shape.shape[d], wanted));  // boxes of about one size
    box = others * extent[d];
  };
  int by_y[kMaxRank], by_x[kMaxRank];  // innermost first
  for (int d = 0; d < b.rank; ++d) by_y[d] = by_x[d] = d;
  std::stable_sort(by_y, by_y + b.rank, [&](int i, int j) { return m.y_stride(i) < m.y_stride(j); });
  std::stable_sort(by_x, by_x + b.rank, [&](int i, int j) { return m.x_stride(i) < m.x_stride(j); });
  const auto run = [&](const int* order, auto stride) {
    int64_t length = 1;
    for (int i = 0; i < b.rank && length < kRun && stride(order[i]) <= 4 * length; ++i) {
      grow(order[i], ceil_div(kRun, length));
      length *= extent[order[i]];
      if (extent[order[i]] < m.shape.shape[order[i]]) break;
    }
  };
  run(by_y, [&](int d) { return m.y_stride(d); });
  run(by_x, [&](int d) { return m.x_stride(d); });
  for (int i = 0; i < b.rank && box < kFullBox; ++i) grow(by_y[i], ceil_div(kFullBox, box / extent[by_y[i]]));

  b.count = 1;
  int64_t reach[2] = {};
  for (int d = 0; d < b.rank; ++d) {
    const int64_t boxes = ceil_div(m.shape.shape[d], extent[d]);
    b.dims[d] = {static_cast<uint32_t>(boxes), static_cast<uint32_t>(extent[d]), m.shape.shape[d],
                 m.y_stride(d), m.x_stride(d)};
    b.count *= boxes;
    reach[0] += (extent[d] - 1) * m.x_stride(d);
    reach[1] += (extent[d] - 1) * m.y_stride(d);
  }
  b.elements = static_cast<uint32_t>(box);
  b.reach = std::max(reach[0], reach[1]);
  uint32_t places[kMaxRank] = {}, place = 1;
  const auto inner = [&](int d, int64_t stride) {
    const auto size = static_cast<uint32_t>(extent[d]);
    return Boxes::Inner{size, static_cast<uint32_t>((uint64_t{1} << 32) / size + 1), d, places[d],
                        static_cast<int>(stride)};
  };
  for (int i = 0; i < b.rank; ++i) {
    const int d = by_y[i];
    if (extent[d] == 1) continue;
    places[d] = place;
    place *= static_cast<uint32_t>(extent[d]);
    b.writing[b.inner++] = inner(d, m.y_stride(d));
  }
  int number = 0;
  for (int i = 0; i < b.rank; ++i)
    if (extent[by_x[i]] != 1) b.reading[number++] = inner(by_x[i], m.x_stride(by_x[i]));
  return b;
}

}  // namespace aicf::cuda
