"""Device functions and types that generated text uses, each piece printed only if it is needed."""

from __future__ import annotations

import re
from collections.abc import Mapping


def load_by(name: str, read: str) -> str:
    """The piece that reads W neighbours, each word by a function of CUDA."""
    return f"""\
template <int W, class T> __device__ __forceinline__ Vec<T, W> {name}(const T* from) {{
  Both<T, W> both;
#pragma unroll
  for (int i = 0; i < Both<T, W>::kWords; ++i)
    both.words[i] = {read}(reinterpret_cast<const typename Both<T, W>::Word*>(from) + i);
  return both.elements;
}}"""


PIECES: Mapping[str, str] = {
    # The wait of the prebuilt kernels; csrc/device/cuda_dependent.cuh explains it.
    "dependency_wait": """\
__device__ __forceinline__ void dependency_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\\ngriddepcontrol.launch_dependents;" ::: "memory");
#endif
}""",
    # The first statement of a kernel that waits later, after its reads of results of launches further back.
    "prefetch": "__device__ __forceinline__ void prefetch() {}",
    "Half": "struct Half { unsigned short bits; };",
    "Bfloat": "struct Bfloat { unsigned short bits; };",
    # Neighbours, aligned to 16 bytes or to all their bytes where these are fewer.
    "Vec": """\
template <class T, int W> struct alignas(sizeof(T) * W < 16 ? sizeof(T) * W : 16) Vec { T at[W]; };""",
    # Of one access.
    "Words": """\
template <int BYTES> struct Words { using type = uint4; };
template <> struct Words<8> { using type = uint2; };
template <> struct Words<4> { using type = unsigned; };
template <> struct Words<2> { using type = unsigned short; };
template <> struct Words<1> { using type = unsigned char; };""",
    "Both": """\
template <class T, int W> union Both {
  using Word = typename Words<sizeof(T) * W>::type;
  static constexpr int kWords = sizeof(T) * W / sizeof(Word);
  Word words[kWords];
  Vec<T, W> elements;
};""",
    "load": """\
template <int W, class T> __device__ __forceinline__ Vec<T, W> load(const T* from) {
  Both<T, W> both;
#pragma unroll
  for (int i = 0; i < Both<T, W>::kWords; ++i)
    both.words[i] = reinterpret_cast<const typename Both<T, W>::Word*>(from)[i];
  return both.elements;
}""",
    "store": """\
template <class T, int W> __device__ __forceinline__ void store(T* to, const Vec<T, W>& elements) {
  Both<T, W> both;
  both.elements = elements;
#pragma unroll
  for (int i = 0; i < Both<T, W>::kWords; ++i)
    reinterpret_cast<typename Both<T, W>::Word*>(to)[i] = both.words[i];
}""",
    # For operands that are read once, and need not stay in the caches.
    "load_once": load_by("load_once", "__ldcs"),
    # Before the wait: not through the first-level cache, where a line may be older than the last write.
    "load_ahead": load_by("load_ahead", "__ldcg"),
    "widen": """\
__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ int widen(int x) { return x; }
__device__ __forceinline__ long long widen(long long x) { return x; }
__device__ __forceinline__ bool widen(unsigned char x) { return x != 0; }
__device__ __forceinline__ float widen(Bfloat x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
__device__ __forceinline__ float widen(Half x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
}""",
    # Element j of neighbours, widened. Of two bf16 in a word the upper one is the word without the lower: one instruction,
    # where the compiler by itself takes it out and then moves it up again.
    "element_of": """\
template <class T, int W> __device__ __forceinline__ auto element_of(const Vec<T, W>& from, int j) { return widen(from.at[j]); }
template <int W> __device__ __forceinline__ float element_of(const Vec<Bfloat, W>& from, int j) {
  if (W % 2 != 0 || j % 2 == 0) return widen(from.at[j]);
  unsigned bits;
  const unsigned word = static_cast<unsigned>(from.at[j].bits) << 16 | from.at[j - 1].bits;
  asm("and.b32 %0, %1, 0xffff0000;" : "=r"(bits) : "r"(word));
  return __uint_as_float(bits);
}""",
    # To nearest even.
    "to_half": """\
__device__ __forceinline__ Half to_half(float x) {
  Half narrow;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
  return narrow;
}
__device__ __forceinline__ Half to_half(double x) {
  Half narrow;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(narrow.bits) : "d"(x));
  return narrow;
}""",
    "to_bfloat": """\
__device__ __forceinline__ Bfloat to_bfloat(float x) {
  Bfloat narrow;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
  return narrow;
}""",
    # x / y, for many x and one y: the reciprocal is computed once, of y moved to [1/2, 1) by a power of two, so that no y,
    # subnormal, zero or infinite, gives another result than a division; within 1.5 units in the last place.
    "shared_quotient": """\
__device__ __forceinline__ float shared_quotient(float x, float y) {
  const int exponent = __float_as_int(y) >> 23 & 255;
  const float scale = __int_as_float((exponent == 255 ? 127 : exponent < 253 ? 253 - exponent : 1) << 23);
  return x * scale * (1.0f / (y * scale));
}""",
    # x / y for a y of 1 or more, whose reciprocal is in the range of the processor's own; within 1.5 units in the last place, or
    # of the smallest normal number.
    "large_quotient": """\
__device__ __forceinline__ float large_quotient(float x, float y) {
  float inverse;
  asm("rcp.approx.f32 %0, %1;" : "=f"(inverse) : "f"(y));
  return x * inverse;
}""",
    # C++ leaves these open where PTX does not: overflow wraps, a divisor of 0 gives 0, shifts may be too far.
    "plus": """\
__device__ __forceinline__ int plus(int x, int y) {
  return static_cast<int>(static_cast<unsigned>(x) + static_cast<unsigned>(y));
}
__device__ __forceinline__ long long plus(long long x, long long y) {
  return static_cast<long long>(static_cast<unsigned long long>(x) + static_cast<unsigned long long>(y));
}""",
    "minus": """\
__device__ __forceinline__ int minus(int x, int y) {
  return static_cast<int>(static_cast<unsigned>(x) - static_cast<unsigned>(y));
}
__device__ __forceinline__ long long minus(long long x, long long y) {
  return static_cast<long long>(static_cast<unsigned long long>(x) - static_cast<unsigned long long>(y));
}""",
    "times": """\
__device__ __forceinline__ int times(int x, int y) {
  return static_cast<int>(static_cast<unsigned>(x) * static_cast<unsigned>(y));
}
__device__ __forceinline__ long long times(long long x, long long y) {
  return static_cast<long long>(static_cast<unsigned long long>(x) * static_cast<unsigned long long>(y));
}""",
    "quotient": """\
template <class T> __device__ __forceinline__ T quotient(T x, T y) {
  return y == 0 ? T(0) : y == -1 ? minus(T(0), x) : T(x / y);
}""",
    "remainder": """\
template <class T> __device__ __forceinline__ T remainder(T x, T y) { return y == 0 || y == -1 ? T(0) : T(x % y); }""",
    "floor_quotient": """\
template <class T> __device__ __forceinline__ T floor_quotient(T x, T y) {
  const T q = quotient(x, y);
  return y != 0 && remainder(x, y) != 0 && (x < 0) != (y < 0) ? T(q - 1) : q;
}""",
    "shift_left": """\
__device__ __forceinline__ int shift_left(int x, int y) {
  return static_cast<unsigned>(y) < 32u ? static_cast<int>(static_cast<unsigned>(x) << y) : 0;
}
__device__ __forceinline__ long long shift_left(long long x, long long y) {
  return static_cast<unsigned long long>(y) < 64u ? static_cast<long long>(static_cast<unsigned long long>(x) << y) : 0;
}""",
    "shift_right": """\
__device__ __forceinline__ int shift_right(int x, int y) { return x >> (static_cast<unsigned>(y) < 32u ? y : 31); }
__device__ __forceinline__ long long shift_right(long long x, long long y) {
  return x >> (static_cast<unsigned long long>(y) < 64u ? y : 63);
}""",
    "shift_right_logical": """\
__device__ __forceinline__ int shift_right_logical(int x, int y) {
  return static_cast<unsigned>(y) < 32u ? static_cast<int>(static_cast<unsigned>(x) >> y) : 0;
}
__device__ __forceinline__ long long shift_right_logical(long long x, long long y) {
  return static_cast<unsigned long long>(y) < 64u ? static_cast<long long>(static_cast<unsigned long long>(x) >> y) : 0;
}""",
    "magnitude": """\
__device__ __forceinline__ int magnitude(int x) { return x < 0 ? minus(0, x) : x; }
__device__ __forceinline__ long long magnitude(long long x) { return x < 0 ? minus(0ll, x) : x; }""",
    # Towards zero; the nearest if there is no such integer, 0 for a NaN.
    "to_int": """\
__device__ __forceinline__ int to_int(float x) { return x == x ? __float2int_rz(x) : 0; }
__device__ __forceinline__ int to_int(double x) { return x == x ? __double2int_rz(x) : 0; }""",
    "to_long": """\
__device__ __forceinline__ long long to_long(float x) { return x == x ? __float2ll_rz(x) : 0; }
__device__ __forceinline__ long long to_long(double x) { return x == x ? __double2ll_rz(x) : 0; }""",
    # NaN where one is a NaN; 0 is larger than -0.
    "larger": """\
__device__ __forceinline__ float larger(float x, float y) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}
__device__ __forceinline__ double larger(double x, double y) { return x != x ? x : y != y ? y : fmax(x, y); }
__device__ __forceinline__ int larger(int x, int y) { return x > y ? x : y; }
__device__ __forceinline__ long long larger(long long x, long long y) { return x > y ? x : y; }
__device__ __forceinline__ bool larger(bool x, bool y) { return x || y; }""",
    "smaller": """\
__device__ __forceinline__ float smaller(float x, float y) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}
__device__ __forceinline__ double smaller(double x, double y) { return x != x ? x : y != y ? y : fmin(x, y); }
__device__ __forceinline__ int smaller(int x, int y) { return x < y ? x : y; }
__device__ __forceinline__ long long smaller(long long x, long long y) { return x < y ? x : y; }
__device__ __forceinline__ bool smaller(bool x, bool y) { return x && y; }""",
    "Sum": """\
struct Sum {
  __device__ __forceinline__ float operator()(float x, float y) const { return x + y; }
  __device__ __forceinline__ double operator()(double x, double y) const { return x + y; }
  __device__ __forceinline__ int operator()(int x, int y) const { return plus(x, y); }
  __device__ __forceinline__ long long operator()(long long x, long long y) const { return plus(x, y); }
  __device__ __forceinline__ bool operator()(bool x, bool y) const { return x != y; }
};""",
    "Product": """\
struct Product {
  __device__ __forceinline__ float operator()(float x, float y) const { return x * y; }
  __device__ __forceinline__ double operator()(double x, double y) const { return x * y; }
  __device__ __forceinline__ int operator()(int x, int y) const { return times(x, y); }
  __device__ __forceinline__ long long operator()(long long x, long long y) const { return times(x, y); }
  __device__ __forceinline__ bool operator()(bool x, bool y) const { return x && y; }
};""",
    "Largest": """\
struct Largest {
  template <class T> __device__ __forceinline__ T operator()(T x, T y) const { return larger(x, y); }
};""",
    "Smallest": """\
struct Smallest {
  template <class T> __device__ __forceinline__ T operator()(T x, T y) const { return smaller(x, y); }
};""",
    "from_lane": """\
template <class T> __device__ __forceinline__ T from_lane(T x, int distance) { return __shfl_xor_sync(0xffffffffu, x, distance); }
__device__ __forceinline__ bool from_lane(bool x, int distance) {
  return __shfl_xor_sync(0xffffffffu, static_cast<int>(x), distance) != 0;
}""",
    # Of LANES neighbouring lanes, a power of two; all lanes of the warp call it, and each gets the result.
    "over_lanes": """\
template <class Op, int LANES, class T> __device__ __forceinline__ T over_lanes(T x) {
#pragma unroll
  for (int distance = LANES / 2; distance > 0; distance /= 2) x = Op{}(x, from_lane(x, distance));
  return x;
}""",
    # From the first to the last.
    "in_order": """\
template <class Op, int COUNT, class T> __device__ __forceinline__ T in_order(const T* values) {
  T x = values[0];
#pragma unroll
  for (int i = 1; i < COUNT; ++i) x = Op{}(x, values[i]);
  return x;
}""",
    # The partial results of a reduction, which begin so many bytes into the workspace.
    "partial": """\
template <class T> __device__ __forceinline__ T* partial(void* workspace, long long start) {
  return reinterpret_cast<T*>(static_cast<char*>(workspace) + start);
}""",
    # Of another block of this launch: not from the first-level cache.
    "handed_on": """\
template <class T> __device__ __forceinline__ T handed_on(const T* from) { return *static_cast<const volatile T*>(from); }""",
    # Waits for all `blocks` that have this gate, and sees what they have written. All of them run at once. The gate has a count
    # that is 0 again at the end, and the number of meetings.
    "meet_blocks": """\
__device__ __forceinline__ void meet_blocks(unsigned* gate, unsigned blocks) {
  __syncthreads();
  if (threadIdx.x == 0) {
    volatile unsigned* const seen = gate;
    const unsigned before = seen[1];
    __threadfence();
    if (atomicAdd(gate, 1u) == blocks - 1) {
      seen[0] = 0;
      __threadfence();
      atomicAdd(gate + 1, 1u);
    } else {
      while (seen[1] == before) {
      }
    }
    __threadfence();
  }
  __syncthreads();
}""",
    # By repeated squares; the relative error is that of as many products as the exponent, in f64.
    "integer_power": """\
__device__ __forceinline__ double integer_power(double x, long long exponent) {
  double square = x, power = 1.0;
  unsigned long long left = exponent < 0 ? 0ull - static_cast<unsigned long long>(exponent) : exponent;
  for (; left != 0; left >>= 1) {
    if (left & 1) power *= square;
    square *= square;
  }
  return exponent < 0 ? 1.0 / power : power;
}
__device__ __forceinline__ float integer_power(float x, long long exponent) {
  return static_cast<float>(integer_power(static_cast<double>(x), exponent));
}""",
    # Philox4x32-10; the compiler leaves out the parts that a word does not need.
    "philox": """\
__device__ __forceinline__ uint4 philox(long long seed, long long step, long long site, long long element) {
  unsigned a = static_cast<unsigned>(element), b = static_cast<unsigned>(element >> 32);
  unsigned c = static_cast<unsigned>(site), d = static_cast<unsigned>(step);
  unsigned left = static_cast<unsigned>(seed), right = static_cast<unsigned>(seed >> 32);
#pragma unroll
  for (int i = 0; i < 10; ++i) {
    const unsigned long long first = a * 0xD2511F53ull, second = c * 0xCD9E8D57ull;
    a = static_cast<unsigned>(second >> 32) ^ b ^ left;
    b = static_cast<unsigned>(second);
    c = static_cast<unsigned>(first >> 32) ^ d ^ right;
    d = static_cast<unsigned>(first);
    left += 0x9E3779B9u;
    right += 0xBB67AE85u;
  }
  return uint4{a, b, c, d};
}""",
    # An index that is clamped into a dimension of a table.
    "clamped": """\
__device__ __forceinline__ long long clamped(long long index, long long size) {
  return index < 0 ? 0 : index < size ? index : size - 1;
}
__device__ __forceinline__ int clamped(int index, int size) {
  return index < 0 ? 0 : index < size ? index : size - 1;
}""",
}
"""The pieces by name, in an order in which each uses only earlier ones."""

_WORD = re.compile(r"\w+")
_WORDS = {name: frozenset(_WORD.findall(piece)) for name, piece in PIECES.items()}


def with_pieces(text: str) -> str:
    """`text` preceded by the pieces that it names, and those that these name."""
    needed: list[str] = []
    words = set(_WORD.findall(text))
    for name in reversed(list(PIECES)):
        if name in words:
            needed.append(PIECES[name])
            words |= _WORDS[name]
    return "\n".join([*reversed(needed), text])
