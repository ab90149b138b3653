// The thread pool under load: every item of every loop is run once, by whatever threads; loops inside of
// loops, from several callers at once, after a fork, while the number of threads changes, and with the
// caller's rounding. Prints one line for each that holds.
#include <sys/wait.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "device/pool.h"

using aicf::run_in_pool;

namespace {

void expect(bool holds, const char* what) {
  std::printf("%s%s\n", holds ? "" : "FAILED: ", what);
  std::fflush(stdout);
  if (!holds) std::exit(1);
}

// Whether each of `count` items is run exactly once.
bool each_once(int64_t count, int64_t grain) {
  std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
  run_in_pool(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      runs[static_cast<size_t>(i)].fetch_add(1, std::memory_order_relaxed);
  });
  for (const auto& times : runs)
    if (times.load() != 1) return false;
  return true;
}

bool many_loops(int loops) {
  for (int i = 0; i < loops; ++i)
    if (!each_once(1 + i % 97, 1 + i % 5)) return false;
  return true;
}

bool nested() {
  std::atomic<int64_t> total{0};
  run_in_pool(64, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const std::thread::id outer = std::this_thread::get_id();
      run_in_pool(100, 1, [&](int64_t b, int64_t e) {
        if (std::this_thread::get_id() == outer) total += e - b;
      });
    }
  });
  return total == 6400;
}

bool several_callers(int loops) {
  std::atomic<bool> right{true};
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) callers.emplace_back([&] { right = many_loops(loops) && right; });
  for (std::thread& caller : callers) caller.join();
  return right;
}

bool in_a_child() {
  const pid_t child = fork();
  if (child == 0) _exit(many_loops(2000) && aicf::pool_threads() == 3 ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  return status == 0 && many_loops(2000);
}

bool with_changing_threads() {
  std::atomic<bool> done{false};
  std::thread changing([&] {
    for (int i = 0; !done; ++i) (void)aicf::set_pool_threads(1 + i % 5);
  });
  const bool right = many_loops(20000);
  done = true;
  changing.join();
  return right;
}

bool with_the_rounding_of_the_caller() {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // flush to zero, denormals are zero
  std::atomic<int> other{0};
  std::mutex mutex;
  std::set<std::thread::id> threads;
  for (int i = 0; i < 2000 && threads.size() < 2; ++i)  // the machine may be busy
    run_in_pool(8, 1, [&](int64_t, int64_t) {
      usleep(200);
      if ((_mm_getcsr() & 0x8040) != 0x8040) ++other;
      const std::lock_guard<std::mutex> lock(mutex);
      threads.insert(std::this_thread::get_id());
    });
  _mm_setcsr(before);
  run_in_pool(8, 1, [&](int64_t, int64_t) {
    if ((_mm_getcsr() & 0x8040) != (before & 0x8040)) ++other;
  });
  return other == 0 && threads.size() > 1;
}

bool small_loops_stay_here() {
  const std::thread::id here = std::this_thread::get_id();
  bool right = true;
  for (int i = 0; i < 1000; ++i)
    run_in_pool(15, 8, [&](int64_t begin, int64_t end) {
      right = right && begin == 0 && end == 15 && std::this_thread::get_id() == here;
    });
  run_in_pool(0, 1, [&](int64_t, int64_t) { right = false; });
  return right;
}

}  // namespace

int main() {
  expect(aicf::pool_threads() >= 1, "as many threads as processors");
  expect(aicf::set_pool_threads(3).is_ok() && aicf::pool_threads() == 3, "another number of threads");
  expect(!aicf::set_pool_threads(0).is_ok() && !aicf::set_pool_threads(257).is_ok(), "no other number");
  expect(small_loops_stay_here(), "small loops stay here");
  expect(many_loops(20000), "many loops");
  expect(nested(), "loops inside of loops");
  expect(with_the_rounding_of_the_caller(), "with the rounding of the caller");
  expect(several_callers(5000), "several callers");
  expect(in_a_child(), "in a child");
  expect(with_changing_threads(), "with changing threads");
}
