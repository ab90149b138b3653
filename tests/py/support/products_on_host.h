// What csrc/kernels/gemm/device/instructions.cuh promises, on the host: it stands in its place behind
// cuda_on_host.h. A copy takes place when it is waited for, or `at_once`: both may happen.

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace aicf::gemm {

struct Copy {
  void* to;
  const void* from;
  int bytes, valid;
};
static bool at_once;
static std::vector<std::vector<Copy>> groups[1024];  // of each thread; the last one is not committed
static unsigned handed[1024][6];                     // between the lanes of a warp
static const void* rows[1024];

static bool aligned(const void* address, size_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

inline void take_place(const Copy& copy) {
  std::memset(copy.to, 0, copy.bytes);
  std::memcpy(copy.to, copy.from, copy.valid);
}

template <int BYTES>
void copy_async(void* shared, const void* global, int valid) {
  if (!aligned(shared, BYTES) || !aligned(global, BYTES) || valid < 0 || valid > BYTES) __builtin_trap();
  auto& own = groups[running];
  if (own.empty()) own.emplace_back();
  if (at_once) return take_place({shared, global, BYTES, valid});
  own.back().push_back({shared, global, BYTES, valid});
}
template <int BYTES>
void copy_async_unless(bool zeros, void* shared, const void* global) {
  copy_async<BYTES>(shared, global, zeros ? 0 : BYTES);
}
inline void commit_copies() {
  auto& own = groups[running];
  if (own.empty()) own.emplace_back();
  own.emplace_back();
}
template <int PENDING>
void wait_copies() {
  auto& own = groups[running];
  while (own.size() > PENDING + 1) {
    for (const Copy& copy : own.front()) take_place(copy);
    own.erase(own.begin());
  }
}

using SharedAddress = unsigned char*;
inline SharedAddress shared_address(void* shared) { return static_cast<SharedAddress>(shared); }
inline SharedAddress kept(SharedAddress x) { return x; }
inline SharedAddress exchanged(SharedAddress x, unsigned distance) {
  return reinterpret_cast<SharedAddress>(reinterpret_cast<uintptr_t>(x) ^ distance);
}
inline float4 read_four(SharedAddress from) {
  if (!aligned(from, 16)) __builtin_trap();
  return *reinterpret_cast<const float4*>(from);
}
inline void write_one(SharedAddress to, float x) {
  if (!aligned(to, 4)) __builtin_trap();
  *reinterpret_cast<float*>(to) = x;
}
template <int THREADS>
void sync_group(int group) {
  if (static_cast<int>(running) / THREADS != group) __builtin_trap();
  fibers[running].group = THREADS;
  wait_for(Wait::Group);
}

template <bool TRANSPOSED>
void read_matrices(unsigned (&to)[4], const void* row) {
  const unsigned me = running, first = me / 32 * 32, lane = me % 32;
  rows[me] = row;
  wait_for(Wait::Warp);
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    const void* const* of = rows + first + matrix * 8;
    unsigned banks = 0;  // each row has four of its own, or the hardware takes several turns
    for (int r = 0; r < 8; ++r) banks |= 1u << reinterpret_cast<uintptr_t>(of[r]) / 16 % 8;
    if (banks != 0xff) __builtin_trap();
    unsigned short pair[2];
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned r = lane / 4, c = lane % 4 * 2 + i;
      const void* from = TRANSPOSED ? of[c] : of[r];
      if (!aligned(from, 16)) __builtin_trap();
      pair[i] = static_cast<const unsigned short*>(from)[TRANSPOSED ? r : c];
    }
    std::memcpy(&to[matrix], pair, 4);
  }
  wait_for(Wait::Warp);
}

// Element (row, k) of x and (k, column) of y, by the lane and the register that hold them.
template <class Format>
void multiply_matrices(float (&sums)[4], const unsigned (&x)[4], const unsigned (&y)[2]) {
  const unsigned me = running, first = me / 32 * 32, lane = me % 32;
  std::memcpy(handed[me], x, 16);
  std::memcpy(handed[me] + 4, y, 8);
  wait_for(Wait::Warp);
  const auto part = [&](unsigned position, unsigned quarter, unsigned k) {
    const unsigned bits = handed[first + position % 8 * 4 + k % 8 / 2][quarter];
    return Format::wide(static_cast<unsigned short>(k % 2 ? bits >> 16 : bits));
  };
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (unsigned k = 0; k < 16; ++k)
      sums[i] += part(row, row / 8 + k / 8 * 2, k) * part(column, 4 + k / 8, k);
  }
  wait_for(Wait::Warp);
}

struct F16 {
  using Element = unsigned short;
  using Wide = float;
  static constexpr int kStep = 16;
  static float wide(Element x) { return half_to_float(x); }
  static void multiply(float (&sums)[4], const unsigned (&x)[4], const unsigned (&y)[2]) {
    multiply_matrices<F16>(sums, x, y);
  }
};
struct BF16 {
  using Element = unsigned short;
  using Wide = float;
  static constexpr int kStep = 16;
  static float wide(Element x) { return __uint_as_float(static_cast<unsigned>(x) << 16); }
  static void multiply(float (&sums)[4], const unsigned (&x)[4], const unsigned (&y)[2]) {
    multiply_matrices<BF16>(sums, x, y);
  }
};
struct TF32 {
  using Element = float;
  using Wide = float;
  static constexpr int kStep = 8;
  static float wide(float x) { return x; }
  static unsigned read(const float* shared) {
    const unsigned me = running, first = me / 32 * 32;
    rows[me] = shared;
    wait_for(Wait::Warp);
    unsigned banks = 0;  // each lane has one of its own, or the hardware takes several turns
    for (unsigned lane = 0; lane < 32; ++lane)
      banks |= 1u << reinterpret_cast<uintptr_t>(rows[first + lane]) / 4 % 32;
    if (banks != ~0u) __builtin_trap();
    wait_for(Wait::Warp);
    const unsigned bits = bits_as<unsigned>(*shared), magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return kNaN;
    return magnitude == 0x7f800000 ? bits : (bits + 0x1000) & ~0x1fffu;
  }
  // Element (row, k) of x and (k, column) of y, by the lane and the register that hold them.
  static void multiply(float (&sums)[4], const unsigned (&x)[4], const unsigned (&y)[2]) {
    const unsigned me = running, first = me / 32 * 32, lane = me % 32;
    std::memcpy(handed[me], x, 16);
    std::memcpy(handed[me] + 4, y, 8);
    wait_for(Wait::Warp);
    const auto part = [&](unsigned position, unsigned quarter, unsigned k) {
      const unsigned bits = handed[first + position % 8 * 4 + k % 4][quarter];
      if (bits & 0x1fff && bits != kNaN) __builtin_trap();  // the hardware would cut them off
      return __uint_as_float(bits);
    };
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      for (unsigned k = 0; k < 8; ++k)
        sums[i] += part(row, row / 8 + k / 4 * 2, k) * part(column, 4 + k / 4, k);
    }
    wait_for(Wait::Warp);
  }
  static constexpr unsigned kNaN = 0x7fffffff;
};
struct F32 {
  using Element = float;
  using Wide = float;
  static float wide(float x) { return x; }
};
struct F64 {
  using Element = double;
  using Wide = double;
  static double wide(double x) { return x; }
};

}  // namespace aicf::gemm
