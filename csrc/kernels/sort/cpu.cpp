// argsort on the CPU. An element is a number of its key and its place, so that no two are equal and any sort
// is stable: few are compared, many go by their digits from the lowest (Knuth, The Art of Computer
// Programming 3, 5.2.5). A single one is selected.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/common/cpu_parallel.h"
#include "kernels/sort/keys.h"
#include "kernels/sort/launch.h"

namespace aicf {
namespace {

using namespace cpu;

constexpr int64_t kFew = 32;       // elements: comparing them is faster than to count digits
constexpr int64_t kMany = 4096;    // elements that are worth larger digits
constexpr int64_t kPerWanted = 8;  // elements for each that is wanted, from which the others are not sorted

template <class Key>
struct Placed {
  Key key;
  uint32_t place;
  Placed() = default;
  Placed(Key key, int64_t place) : key(key), place(static_cast<uint32_t>(place)) {}
  bool operator<(const Placed& other) const {
    return key != other.key ? key < other.key : place < other.place;
  }
};

// In one number.
template <>
struct Placed<uint32_t> {
  uint64_t both;
  Placed() = default;
  Placed(uint32_t key, int64_t place) : both(uint64_t{key} << 32 | static_cast<uint64_t>(place)) {}
  bool operator<(const Placed& other) const { return both < other.both; }
};

inline int64_t place_of(const Placed<uint64_t>& x) { return x.place; }
inline int64_t place_of(const Placed<uint32_t>& x) { return static_cast<uint32_t>(x.both); }
inline uint64_t key_of(const Placed<uint64_t>& x) { return x.key; }
inline uint64_t key_of(const Placed<uint32_t>& x) { return x.both >> 32; }

// Sorts `n` elements at `from`, with as many at `spare`; returns the one of both that has the result.
template <int kBitsPerPass, class Element>
Element* by_digits(Element* from, Element* spare, int64_t n, int bits, std::vector<uint32_t>& counts) {
  constexpr int64_t kValues = int64_t{1} << kBitsPerPass;
  const int passes = (bits + kBitsPerPass - 1) / kBitsPerPass;
  counts.assign(static_cast<size_t>(passes * kValues), 0);
  for (int64_t i = 0; i < n; ++i)
    for (int pass = 0; pass < passes; ++pass)
      ++counts[pass * kValues + (key_of(from[i]) >> pass * kBitsPerPass & (kValues - 1))];
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = pass * kBitsPerPass;
    uint32_t* const places = counts.data() + pass * kValues;
    if (places[key_of(from[0]) >> shift & (kValues - 1)] == n) continue;  // all have the same digit
    uint32_t before = 0;
    for (int64_t digit = 0; digit < kValues; ++digit) {
      const uint32_t count = places[digit];
      places[digit] = before;
      before += count;
    }
    for (int64_t i = 0; i < n; ++i) spare[places[key_of(from[i]) >> shift & (kValues - 1)]++] = from[i];
    std::swap(from, spare);
  }
  return from;
}

template <class Order>
void sort_rows(const Argsort& s, int64_t begin, int64_t end) {
  using Element = Placed<typename Order::Key>;
  const typename Order::Key flip = s.descending ? kLastKey<Order> : 0;
  const bool sorts_all = s.count > 1 && s.first + s.count > s.n / kPerWanted;
  const bool has_spare = sorts_all && s.n > kFew;
  std::vector<Element> memory(static_cast<size_t>(has_spare ? 2 * s.n : s.n));
  std::vector<uint32_t> counts;
  for (int64_t row = begin; row < end; ++row) {
    const auto* x = static_cast<const typename Order::Element*>(s.x) + row * s.n;
    Element* found = memory.data();
    for (int64_t i = 0; i < s.n; ++i) found[i] = Element(aicf::key_of<Order>(x[i], flip), i);
    if (has_spare && s.n >= kMany)
      found = by_digits<11>(found, found + s.n, s.n, Order::kBits, counts);
    else if (has_spare)
      found = by_digits<8>(found, found + s.n, s.n, Order::kBits, counts);
    else if (sorts_all)
      std::sort(found, found + s.n);
    else if (s.count == 1)
      std::nth_element(found, found + s.first, found + s.n);
    else
      std::partial_sort(found, found + s.first + s.count, found + s.n);
    for (int64_t i = 0; i < s.count; ++i) s.index[row * s.count + i] = place_of(found[s.first + i]);
  }
}

}  // namespace

Status argsort_cpu(const Argsort& s, const LaunchContext&) {
  if (s.count == 0) return Status::ok();
  return with_order(s.dtype, [&](auto tag) {
    using Order = typename decltype(tag)::type;
    in_parallel(s.rows, grain_rows(8 * s.n),
                [&](int64_t begin, int64_t end) { sort_rows<Order>(s, begin, end); });
    return Status::ok();
  });
}

}  // namespace aicf
