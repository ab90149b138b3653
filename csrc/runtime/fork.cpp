#include "runtime/fork.h"

#include <pthread.h>

namespace aicf {
namespace {

int generation = 0;
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { ++generation; });

}  // namespace

int fork_generation() { return generation; }

}  // namespace aicf
