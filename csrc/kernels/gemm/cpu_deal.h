// What threads that share a product have of their own and in common: memory for what they pack, and who
// computes what.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>

namespace aicf::cpu {

constexpr int64_t kMostGroups = 64;  // of columns that are dealt at once

// Memory of a thread that lasts as long as the thread, for what it packs.
class Packed {
 public:
  // At least `count` floats, on a cache line; null where there is no memory.
  float* room(int64_t count) {
    if (count > count_) {
      data_.reset();
      data_.reset(static_cast<float*>(
          ::operator new(static_cast<size_t>(count) * sizeof(float), kLine, std::nothrow)));
      count_ = data_ ? count : 0;
    }
    return data_.get();
  }

 private:
  static constexpr std::align_val_t kLine{64};
  struct Free {
    void operator()(float* data) const { ::operator delete(data, kLine); }
  };
  std::unique_ptr<float, Free> data_;
  int64_t count_ = 0;
};

inline Packed& packed_rows() {
  thread_local Packed rows;
  return rows;
}
inline Packed& packed_group() {
  thread_local Packed group;
  return group;
}

inline int64_t divide_up(int64_t x, int64_t y) { return (x + y - 1) / y; }

// `strips` in parts of about one size and at most `most` each.
struct Parts {
  int64_t strips, count, each;
  Parts(int64_t strips, int64_t most)
      : strips(strips),
        each(std::max<int64_t>(1, divide_up(strips, std::max<int64_t>(1, divide_up(strips, most))))) {
    count = divide_up(strips, each);
  }
  int64_t end(int64_t part) const { return std::min(strips, (part + 1) * each); }
};

// Who computes which part of a product: groups in order, then what is left of any.
class Deal {
 public:
  Deal(int64_t groups, int64_t parts) : groups_(groups), parts_(parts) {
    for (int64_t g = 0; g < groups; ++g) next_[g].store(0, std::memory_order_relaxed);
  }

  // `work(group, next, take)` for each group that the calling thread takes or helps with: `take()` is the
  // next part of it, or `parts` or more where none is left, and `next` the group that it will take then, or
  // `groups`.
  template <class Work>
  void run(Work work) {
    int64_t g = group_.fetch_add(1, std::memory_order_relaxed);
    while (g < groups_) {
      const int64_t next = group_.fetch_add(1, std::memory_order_relaxed);
      work(g, next, [this, g] { return take(g); });
      g = next;
    }
    for (g = 0; g < groups_; ++g)
      if (next_[g].load(std::memory_order_relaxed) < parts_) work(g, groups_, [this, g] { return take(g); });
  }

 private:
  int64_t take(int64_t g) { return next_[g].fetch_add(1, std::memory_order_relaxed); }

  int64_t groups_, parts_;
  std::atomic<int64_t> group_{0};
  std::atomic<int64_t> next_[kMostGroups];
};

}  // namespace aicf::cpu
