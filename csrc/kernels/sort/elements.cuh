// What an argsort reads and writes on CUDA: the elements of its rows, and some of the places in their order.
#pragma once
#include "kernels/sort/keys.h"
#include "kernels/sort/launch.h"

namespace aicf::cuda {

template <class Order>
struct FromElements {
  using Key = typename Order::Key;
  const typename Order::Element* x;
  int64_t n;
  Key flip;

  explicit FromElements(const Argsort& s)
      : x(static_cast<const typename Order::Element*>(s.x)),
        n(s.n),
        flip(s.descending ? kLastKey<Order> : 0) {}
  __device__ Key key(int64_t row, int64_t i) const { return key_of<Order>(x[row * n + i], flip); }
  __device__ uint32_t value(int64_t, int64_t i) const { return static_cast<uint32_t>(i); }
};

struct ToIndex {
  int64_t* index;
  int64_t count, first;

  explicit ToIndex(const Argsort& s) : index(s.index), count(s.count), first(s.first) {}
  template <class Key>
  __device__ void put_key(int64_t, int64_t, Key) const {}
  __device__ void put_value(int64_t row, int64_t to, uint32_t value) const {
    const int64_t at = to - first;
    if (at >= 0 && at < count) index[row * count + at] = value;
  }
};

}  // namespace aicf::cuda
