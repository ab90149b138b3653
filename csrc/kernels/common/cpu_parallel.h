// Loops of CPU kernels over threads. Who runs them, the module says: a library of kernels that is loaded
// beside it must use the threads of the process, not bring its own.
#pragma once
#include <algorithm>
#include <cstdint>

namespace aicf::cpu {

using RunLoop = void (*)(int64_t count, int64_t grain, void (*range)(void* work, int64_t begin, int64_t end),
                         void* work);

// All loops are run by `run` from now on (device/pool.h: run_in_pool); by the calling thread alone before.
void use_threads(RunLoop run);
RunLoop loop_runner();

constexpr int64_t kGrainElements = 16384;      // of simple arithmetic, that are worth a thread
constexpr int64_t kGrainProducts = 1'000'000;  // multiplications of a matrix product that are, some 20 µs

// Calls f(begin, end) for parts of [0, count), at least `grain` items each, side by side. What is computed
// must not depend on where they end.
template <class F>
void in_parallel(int64_t count, int64_t grain, F f) {
  if (count < 2 * grain) return count > 0 ? f(int64_t{0}, count) : void();
  loop_runner()(
      count, grain, [](void* work, int64_t begin, int64_t end) { (*static_cast<F*>(work))(begin, end); }, &f);
}

// Rows of `length` elements each that are worth a thread.
inline int64_t grain_rows(int64_t length) {
  return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(length, 1));
}

}  // namespace aicf::cpu
