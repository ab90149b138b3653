// Enough of CUDA to run a block of a generated kernel on the host, each thread a fiber: barriers and shuffles
// switch.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define __global__
#define __device__
#define __constant__ static
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct Index {
  unsigned x;
};
static Index threadIdx, blockIdx, gridDim;

template <class To, class From>
inline To bits_as(From from) {
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
inline int __float_as_int(float x) { return bits_as<int>(x); }
inline float __int_as_float(int x) { return bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return bits_as<double>(x); }
inline float rsqrtf(float x) { return static_cast<float>(1 / std::sqrt(static_cast<double>(x))); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
template <class Integer, class Float>
inline Integer saturated(Float x) {
  const Float top = std::ldexp(Float(1), sizeof(Integer) * 8 - 1);
  if (x >= top) return static_cast<Integer>(sizeof(Integer) == 4 ? INT_MAX : LLONG_MAX);
  if (x <= -top) return static_cast<Integer>(sizeof(Integer) == 4 ? INT_MIN : LLONG_MIN);
  return static_cast<Integer>(x);
}
inline int __float2int_rz(float x) { return saturated<int>(x); }
inline int __double2int_rz(double x) { return saturated<int>(x); }
inline long long __float2ll_rz(float x) { return saturated<long long>(x); }
inline long long __double2ll_rz(double x) { return saturated<long long>(x); }
template <class T>
inline T __ldcs(const T* from) {
  return *from;
}
template <class T>
inline void __stcs(T* to, T value) {
  *to = value;
}
inline unsigned upper_half(unsigned x) { return x & 0xffff0000u; }
inline float half_to_float(unsigned short x) { return static_cast<float>(bits_as<_Float16>(x)); }
inline unsigned short float_to_half(float x) { return bits_as<unsigned short>(static_cast<_Float16>(x)); }
inline unsigned short double_to_half(double x) { return bits_as<unsigned short>(static_cast<_Float16>(x)); }
inline float reciprocal(float x) { return 1.0f / x; }
inline unsigned short float_to_bfloat(float x) {
  const unsigned bits = bits_as<unsigned>(x);
  if (x != x) return 0x7fff;
  return static_cast<unsigned short>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
inline float max_nan(float x, float y) {
  return x != x || y != y ? NAN : x == y ? (std::signbit(x) ? y : x) : x > y ? x : y;
}
inline float min_nan(float x, float y) {
  return x != x || y != y ? NAN : x == y ? (std::signbit(x) ? x : y) : x < y ? x : y;
}

enum class Wait { None, Warp, Group, Block, Done };
struct Fiber {
  jmp_buf place;
  std::vector<char> stack;
  Wait wait;
  unsigned group = 0;  // threads of the barrier, where it waits for others of its group
  bool started = false;
};
static std::vector<Fiber> fibers;
static jmp_buf scheduler;
static unsigned running;
static unsigned char exchanged[1024][8];

// By jumps, which unlike swapcontext make no system call; nothing is kept in these frames across them.
__attribute__((noinline)) static void wait_for(Wait what) {
  Fiber& fiber = fibers[running];
  fiber.wait = what;
  if (!_setjmp(fiber.place)) _longjmp(scheduler, 1);
}
inline void __syncthreads() { wait_for(Wait::Block); }

inline void __syncwarp() { wait_for(Wait::Warp); }

// What the thread `from` of this warp has handed over.
template <class T>
inline T handed_over(T x, unsigned from) {
  std::memcpy(exchanged[running], &x, sizeof x);
  wait_for(Wait::Warp);
  std::memcpy(&x, exchanged[from], sizeof x);
  wait_for(Wait::Warp);
  return x;
}
template <class T>
inline T __shfl_xor_sync(unsigned, T x, int distance) {
  return handed_over(x, running ^ static_cast<unsigned>(distance));
}
template <class T>
inline T __shfl_sync(unsigned, T x, int lane) {
  return handed_over(x, running / 32 * 32 + static_cast<unsigned>(lane));
}
template <class T>
inline T __shfl_up_sync(unsigned, T x, int distance) {
  const unsigned lane = running % 32, step = static_cast<unsigned>(distance);
  return handed_over(x, lane < step ? running : running - step);
}
inline unsigned __ballot_sync(unsigned, bool vote) {
  const unsigned first = running / 32 * 32;
  exchanged[running][0] = vote;
  wait_for(Wait::Warp);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    votes |= static_cast<unsigned>(exchanged[first + lane][0]) << lane;
  wait_for(Wait::Warp);
  return votes;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int atomicMax(int* at, int x) {
  const int before = *at;
  if (x > before) *at = x;
  return before;
}

// A block that meets others is not run here: it is the launch of several walks at once.
inline void __threadfence() { std::abort(); }
inline unsigned atomicAdd(unsigned*, unsigned) { std::abort(); }

static void (*body)();
static void enter() {
  for (;;) {
    body();
    wait_for(Wait::Done);
  }
}

// Runs a thread until it waits. A fiber that is done begins the next block that it is needed for.
__attribute__((noinline)) static void resume(Fiber& fiber) {
  if (_setjmp(scheduler)) return;
  if (fiber.started) _longjmp(fiber.place, 1);
  fiber.started = true;
  fiber.stack.resize(1 << 16);
  static ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack.data();
  context.uc_stack.ss_size = fiber.stack.size();
  context.uc_link = nullptr;
  makecontext(&context, enter, 0);
  setcontext(&context);
}

// Between two barriers threads run one after the other, the last first where `backwards`: a missing barrier
// shows. Returns 0, or 1 where threads wait for others that never come.
static int run_grid(void (*kernel)(), unsigned blocks, unsigned threads, bool backwards) {
  body = kernel;
  gridDim.x = blocks;
  if (fibers.size() < threads) fibers.resize(threads);
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    for (unsigned t = 0; t < threads; ++t) fibers[t].wait = Wait::None;
    for (bool all_done = false; !all_done;) {
      bool ran = false;
      all_done = true;
      for (unsigned n = 0; n < threads; ++n) {
        const unsigned t = backwards ? threads - 1 - n : n;
        if (fibers[t].wait != Wait::None) continue;
        running = t;
        threadIdx.x = t;
        ran = true;
        resume(fibers[t]);
      }
      bool block = true;
      for (unsigned t = 0; t < threads; ++t) {
        block = block && (fibers[t].wait == Wait::Block || fibers[t].wait == Wait::Done);
        all_done = all_done && fibers[t].wait == Wait::Done;
      }
      // A shuffle names all lanes of its warp: one that has left would be missed.
      for (unsigned first = 0; first < threads; first += 32) {
        bool warp = true;
        for (unsigned t = first; t < first + 32 && t < threads; ++t)
          warp = warp && fibers[t].wait == Wait::Warp;
        if (warp)
          for (unsigned t = first; t < first + 32 && t < threads; ++t)
            fibers[t].wait = Wait::None, ran = true;
      }
      for (unsigned first = 0; first < threads; first += 32) {
        if (fibers[first].wait != Wait::Group || first % fibers[first].group != 0) continue;
        const unsigned size = fibers[first].group;
        bool group = first + size <= threads;
        for (unsigned t = first; group && t < first + size; ++t)
          group = fibers[t].wait == Wait::Group && fibers[t].group == size;
        if (group)
          for (unsigned t = first; t < first + size; ++t) fibers[t].wait = Wait::None, ran = true;
      }
      if (block && !all_done)
        for (unsigned t = 0; t < threads; ++t)
          if (fibers[t].wait == Wait::Block) fibers[t].wait = Wait::None, ran = true;
      if (!ran && !all_done) {
        fibers.clear();  // those that wait are in the middle of a body
        return 1;
      }
    }
  }
  return 0;
}

static void* arguments[4096];
