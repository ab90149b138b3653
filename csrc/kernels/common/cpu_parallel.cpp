#include "kernels/common/cpu_parallel.h"

namespace aicf::cpu {
namespace {

void run_here(int64_t count, int64_t, void (*range)(void*, int64_t, int64_t), void* work) {
  range(work, 0, count);
}

RunLoop runner = run_here;

}  // namespace

void use_threads(RunLoop run) { runner = run; }
RunLoop loop_runner() { return runner; }

}  // namespace aicf::cpu
