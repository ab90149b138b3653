// The threads of the CPU kernels: one pool a process, which a kernel lends for the time of one loop.
#pragma once
#include <cstdint>

#include "op/status.h"

namespace aicf {

// Items [begin, end) of a loop; `work` is what the caller handed over.
using Range = void (*)(void* work, int64_t begin, int64_t end);

// Calls `range` for parts of [0, count) that do not overlap, side by side where that pays: in parts of
// `grain` items at least, and all of them here where there are fewer than two such parts. Where the parts end
// says the number of threads, and nothing says who runs which: a result must depend on neither. Returns when
// all is done. Inside of a part, and while another thread has the pool, everything is run by the calling
// thread. Workers run with the floating-point settings of the caller. `range` does not throw.
void run_in_pool(int64_t count, int64_t grain, Range range, void* work);

constexpr int kMostThreads = 256;

// How many threads run a loop, the calling one among them: as many as the processors that this process may
// use, until set_pool_threads says otherwise. It waits for a loop that is running, and refuses numbers
// outside [1, kMostThreads].
int pool_threads();
Status set_pool_threads(int64_t threads);

// The same for any callable f(begin, end).
template <class F>
void run_in_pool(int64_t count, int64_t grain, F f) {
  run_in_pool(
      count, grain, [](void* work, int64_t begin, int64_t end) { (*static_cast<F*>(work))(begin, end); }, &f);
}

}  // namespace aicf
