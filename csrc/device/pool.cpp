// Parts of a loop are dealt from one word, (number of the loop, next part), by compare-and-swap: a worker
// takes a part only of the loop whose description it has read, and one that wakes too late takes none. So the
// caller never waits for a thread that has not begun, only for parts that are being computed.
#include "device/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <new>
#include <string>

namespace aicf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kPartsPerThread = 16;  // so that a thread that is held up delays the others little
// After so many loops of which no worker took a part, the processors being busy with something else, only one
// in so many is offered to the workers: to wake them costs some microseconds.
constexpr int kUselessLoops = 8, kOffered = 8;
constexpr int kPartBits = 16;  // kMostThreads * kPartsPerThread fits
constexpr uint64_t kPartMask = (uint64_t{1} << kPartBits) - 1;

// A thread looks for work this long before it sleeps: launches of a step follow one another within it, and
// steps that Python asks for one by one. What it finds nothing in is halved, down to the least. Where threads
// share processors none looks at all: it would hold up the one that has the work.
constexpr Clock::duration kLongestSpin = std::chrono::microseconds(100);
constexpr Clock::duration kShortestSpin = std::chrono::microseconds(1);

void pause() {
#ifdef __SSE__
  _mm_pause();
#endif
}

unsigned float_settings() {
#ifdef __SSE__
  return _mm_getcsr();
#else
  return 0;
#endif
}

void use_float_settings([[maybe_unused]] unsigned settings) {
#ifdef __SSE__
  if (_mm_getcsr() != settings) _mm_setcsr(settings);
#endif
}

void futex_wait(std::atomic<uint32_t>* word, uint32_t expected) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>* word, int threads) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

// Whether `ready` answers true within `time`.
template <class Ready>
bool spin(Clock::duration time, bool crowded, Ready ready) {
  if (crowded) return ready();
  const Clock::time_point end = Clock::now() + time;
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (Clock::now() < end);
  return false;
}

int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::clamp(count, 1, kMostThreads);
}

// All of it is reset in a forked child, where no other thread is.
struct Pool {
  std::atomic<bool> taken{false};    // by the thread whose loop runs
  std::atomic<int> threads{0};       // 0: not asked yet
  std::atomic<bool> crowded{false};  // more threads than processors

  // The loop. Written by the thread that has the pool, while `deal` is closed; read by workers at any time,
  // who learn from `deal` whether what they read belonged together.
  std::atomic<uint64_t> deal{kPartMask};  // number of the loop, next part; closed: the part is kPartMask
  std::atomic<Range> range{nullptr};
  std::atomic<void*> work{nullptr};
  std::atomic<int64_t> count{0}, parts{0};
  std::atomic<unsigned> settings{0};
  std::atomic<uint32_t> left{0};  // parts that are not complete; the caller sleeps on it
  std::atomic<bool> caller_sleeps{false};

  std::atomic<uint32_t> posted{0};  // changes with each loop; workers sleep on it
  std::atomic<int> sleeping{0};
  std::atomic<int> most_workers{0};  // a worker of a higher number ends
  int64_t useless = 0;  // loops in a row of which no worker took a part; of the thread that has the pool
  int workers = 0;      // that run; of the thread that has the pool
  pthread_t handles[kMostThreads];
};

Pool pool;
thread_local bool inside = false;  // whether this thread runs a part

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] {
  const int threads = pool.threads.load(std::memory_order_relaxed);
  const bool crowded = pool.crowded.load(std::memory_order_relaxed);
  new (&pool) Pool;
  pool.threads.store(threads, std::memory_order_relaxed);
  pool.crowded.store(crowded, std::memory_order_relaxed);
});

int64_t part_start(int64_t count, int64_t parts, int64_t part) {
  return count / parts * part + std::min(part, count % parts);
}

// Takes parts of the loop that is dealt until there is none; how many it took.
int64_t take_parts() {
  for (int64_t taken = 0;;) {
    uint64_t deal = pool.deal.load(std::memory_order_acquire);
    const int64_t parts = pool.parts.load(std::memory_order_acquire);
    const int64_t part = static_cast<int64_t>(deal & kPartMask);
    if (part >= parts) return taken;
    const Range range = pool.range.load(std::memory_order_acquire);
    void* const work = pool.work.load(std::memory_order_acquire);
    const int64_t count = pool.count.load(std::memory_order_acquire);
    const unsigned settings = pool.settings.load(std::memory_order_acquire);
    // Whoever has read anything of a later loop sees here that `deal` was closed before it was written.
    if (!pool.deal.compare_exchange_weak(deal, deal + 1, std::memory_order_acq_rel)) continue;
    use_float_settings(settings);
    range(work, part_start(count, parts, part), part_start(count, parts, part + 1));
    ++taken;
    if (pool.left.fetch_sub(1, std::memory_order_seq_cst) == 1 &&
        pool.caller_sleeps.load(std::memory_order_seq_cst))
      futex_wake(&pool.left, 1);
  }
}

void* work_until_ended(void* argument) {
  const int number = static_cast<int>(reinterpret_cast<intptr_t>(argument));
  inside = true;
  Clock::duration patience = kLongestSpin;
  for (;;) {
    const uint32_t seen = pool.posted.load(std::memory_order_seq_cst);
    if (number >= pool.most_workers.load(std::memory_order_acquire)) return nullptr;
    take_parts();
    const auto changed = [&] { return pool.posted.load(std::memory_order_relaxed) != seen; };
    if (spin(patience, pool.crowded.load(std::memory_order_relaxed), changed)) {
      patience = kLongestSpin;
      continue;
    }
    patience = std::max(patience / 2, kShortestSpin);
    pool.sleeping.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(&pool.posted, seen);
    pool.sleeping.fetch_sub(1, std::memory_order_seq_cst);
  }
}

// Starts the workers that are missing; where the system gives none there are fewer. No signal is handled on
// them.
void start_workers(int wanted) {
  pool.most_workers.store(std::max(wanted, pool.workers), std::memory_order_release);
  if (pool.workers >= wanted) return;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (pool.workers < wanted) {
    void* const number = reinterpret_cast<void*>(static_cast<intptr_t>(pool.workers));
    if (pthread_create(&pool.handles[pool.workers], nullptr, work_until_ended, number) != 0) break;
    ++pool.workers;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void end_workers(int kept) {
  if (pool.workers <= kept) return;
  pool.most_workers.store(kept, std::memory_order_release);
  pool.posted.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(&pool.posted, INT_MAX);
  while (pool.workers > kept) pthread_join(pool.handles[--pool.workers], nullptr);
}

void post(int64_t count, int64_t parts, Range range, void* work) {
  const uint64_t loop = (pool.deal.load(std::memory_order_relaxed) >> kPartBits) + 1;
  pool.deal.store(loop << kPartBits | kPartMask, std::memory_order_relaxed);  // closed
  pool.range.store(range, std::memory_order_release);
  pool.work.store(work, std::memory_order_release);
  pool.count.store(count, std::memory_order_release);
  pool.settings.store(float_settings(), std::memory_order_release);
  pool.left.store(static_cast<uint32_t>(parts), std::memory_order_release);
  pool.parts.store(parts, std::memory_order_release);
  pool.deal.store(loop << kPartBits, std::memory_order_release);
  pool.posted.fetch_add(1, std::memory_order_seq_cst);
  if (pool.sleeping.load(std::memory_order_seq_cst) > 0)
    futex_wake(&pool.posted, static_cast<int>(std::min<int64_t>(parts - 1, INT_MAX)));
}

void wait_for_parts() {
  const auto complete = [] { return pool.left.load(std::memory_order_acquire) == 0; };
  if (spin(kLongestSpin, pool.crowded.load(std::memory_order_relaxed), complete)) return;
  pool.caller_sleeps.store(true, std::memory_order_seq_cst);
  while (const uint32_t left = pool.left.load(std::memory_order_seq_cst)) futex_wait(&pool.left, left);
  pool.caller_sleeps.store(false, std::memory_order_seq_cst);
}

}  // namespace

int pool_threads() {
  int threads = pool.threads.load(std::memory_order_relaxed);
  if (threads == 0) {
    const int found = usable_processors();
    threads = pool.threads.compare_exchange_strong(threads, found) ? found : threads;
  }
  return threads;
}

void run_in_pool(int64_t count, int64_t grain, Range range, void* work) {
  if (count <= 0) return;
  const int threads = pool_threads();
  const int64_t parts = std::min(count / std::max<int64_t>(grain, 1), threads * kPartsPerThread);
  if (parts < 2 || threads == 1 || inside || pool.taken.exchange(true, std::memory_order_acquire))
    return range(work, 0, count);
  inside = true;
  if (pool.useless >= kUselessLoops && pool.useless++ % kOffered != 0) {
    range(work, 0, count);
  } else {
    start_workers(threads - 1);
    post(count, parts, range, work);
    pool.useless = take_parts() == parts ? pool.useless + 1 : 0;
    wait_for_parts();
  }
  inside = false;
  pool.taken.store(false, std::memory_order_release);
}

Status set_pool_threads(int64_t threads) {
  if (threads < 1 || threads > kMostThreads)
    return Status::invalid("expected a number of threads from 1 to " + std::to_string(kMostThreads) +
                           ", got " + std::to_string(threads));
  while (pool.taken.exchange(true, std::memory_order_acquire)) sched_yield();
  end_workers(static_cast<int>(threads) - 1);
  pool.threads.store(static_cast<int>(threads), std::memory_order_relaxed);
  pool.crowded.store(threads > usable_processors(), std::memory_order_relaxed);
  pool.taken.store(false, std::memory_order_release);
  return Status::ok();
}

}  // namespace aicf
