// Data movement on the CPU: one walk over any strides of both sides, which moves bits, or casts between any
// two dtypes.
#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/common/cpu_parallel.h"
#include "kernels/common/cpu_types.h"
#include "kernels/copy/launch.h"
#include "kernels/gemm/cpu_micro_kernel.h"  // transpose

namespace aicf {
namespace {

using namespace cpu;

// Calls f(TypeTag<T>{}) for any dtype; i1 is one byte, 0 or 1.
template <class F>
void with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::F32:
      return f(TypeTag<float>{});
    case DType::F64:
      return f(TypeTag<double>{});
    case DType::F16:
      return f(TypeTag<Half>{});
    case DType::BF16:
      return f(TypeTag<BFloat16>{});
    case DType::I64:
      return f(TypeTag<int64_t>{});
    case DType::I32:
      return f(TypeTag<int32_t>{});
    case DType::I1:
      return f(TypeTag<bool>{});
  }
}

inline int64_t widen(int64_t x) { return x; }
inline int32_t widen(int32_t x) { return x; }
inline bool widen(bool x) { return x; }
using cpu::widen;

// One element of type From as one of type To: floats round to nearest even once, floats become integers by
// truncation (NaN is 0, what is out of range is the nearest end of it), anything but zero is true.
template <class To, class From>
To cast(From from) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else {
    const auto x = widen(from);
    using X = std::decay_t<decltype(x)>;
    if constexpr (std::is_same_v<To, bool>) {
      return x != X(0);
    } else if constexpr (!std::is_integral_v<To>) {
      if constexpr (std::is_same_v<X, Compute<To>>) return narrow<To>(x);
      if constexpr (std::is_same_v<To, float>) return static_cast<float>(x);
      return narrow_double<To>(static_cast<double>(x));
    } else if constexpr (std::is_integral_v<X>) {
      return static_cast<To>(x);
    } else {
      constexpr X kLow =
          static_cast<X>(std::numeric_limits<To>::min());  // a power of two: exact, and so is its negation
      if (x != x) return 0;
      if (x < kLow) return std::numeric_limits<To>::min();
      return x >= -kLow ? std::numeric_limits<To>::max() : static_cast<To>(x);
    }
  }
}

// Two dimensions of a move: rows of columns in y's order.
struct Plane {
  int64_t rows, columns, y_row, y_column, x_row, x_column;
};

template <class To, class From>
void move_row(To* y, const From* x, int64_t n) {
  if constexpr (std::is_same_v<To, From>)
    std::memcpy(y, x, sizeof(To) * static_cast<size_t>(n));
  else
    for (int64_t i = 0; i < n; ++i) y[i] = cast<To>(x[i]);
}

constexpr int64_t kTile = 32;  // of a transposed plane: both sides of the move stay in the first-level cache

// A plane of words whose rows lie by columns in x: squares of them in registers. How much of it is moved:
// whole squares.
struct Moved {
  int64_t rows = 0, columns = 0;
};
Moved move_squares(uint32_t* y, const uint32_t* x, const Plane& p) {
  const Moved moved{p.rows / kLanes * kLanes, p.columns / kLanes * kLanes};
  for (int64_t i0 = 0; i0 < moved.rows; i0 += kTile)
    for (int64_t j = 0; j < moved.columns; j += kLanes)
      for (int64_t i = i0; i < std::min(moved.rows, i0 + kTile); i += kLanes) {
        Vector square[kLanes];
#pragma GCC unroll 16
        for (int l = 0; l < kLanes; ++l)
          square[l] = load(reinterpret_cast<const float*>(x + i + (j + l) * p.x_column));
        transpose(square);
#pragma GCC unroll 16
        for (int l = 0; l < kLanes; ++l)
          store(reinterpret_cast<float*>(y + (i + l) * p.y_row + j), square[l]);
      }
  return moved;
}

// y_column is p's, a constant where it is 1: the inner loop is then much faster.
template <class To, class From, class Stride>
void move_tiles(To* y, const From* x, const Plane& p, Stride y_column) {
  Moved moved;
  if constexpr (std::is_same_v<To, uint32_t> && std::is_same_v<From, uint32_t>) {
    if (p.x_row == 1 && y_column == 1) moved = move_squares(y, x, p);
  }
  for (int64_t i0 = 0; i0 < p.rows; i0 += kTile)
    for (int64_t j0 = 0; j0 < p.columns; j0 += kTile)
      for (int64_t i = i0; i < std::min(p.rows, i0 + kTile); ++i)
        for (int64_t j = i < moved.rows ? std::max(j0, moved.columns) : j0;
             j < std::min(p.columns, j0 + kTile); ++j)
          y[i * p.y_row + j * y_column] = cast<To>(x[i * p.x_row + j * p.x_column]);
}

template <class To, class From>
void move_plane(To* y, const From* x, const Plane& p) {
  if (p.y_column != 1) return move_tiles(y, x, p, p.y_column);
  if (p.x_column > 1) return move_tiles(y, x, p, std::integral_constant<int64_t, 1>{});
  for (int64_t i = 0; i < p.rows; ++i) {
    To* row = y + i * p.y_row;
    if (p.x_column == 1)
      move_row(row, x + i * p.x_row, p.columns);
    else
      std::fill_n(row, p.columns, cast<To>(x[i * p.x_row]));
  }
}

// The dimensions from `d` on.
template <class To, class From>
void move_dimensions(const Move& m, int d, To* y, const From* x) {
  const StridedShape<2>& s = m.shape;
  const int last = s.rank - 1;
  if (d == last - 1)
    return move_plane(
        y, x,
        Plane{s.shape[d], s.shape[last], m.y_stride(d), m.y_stride(last), m.x_stride(d), m.x_stride(last)});
  for (int64_t i = 0; i < s.shape[d]; ++i)
    move_dimensions(m, d + 1, y + i * m.y_stride(d), x + i * m.x_stride(d));
}

template <class To, class From>
void move_all(const Move& m) {
  To* y = static_cast<To*>(m.y);
  const From* x = static_cast<const From*>(m.x);
  if (m.shape.rank == 0) {
    *y = cast<To>(*x);
  } else if (m.shape.rank == 1) {
    in_parallel(m.shape.shape[0], kGrainElements, [&](int64_t begin, int64_t end) {
      move_plane(y + begin * m.y_stride(0), x + begin * m.x_stride(0),
                 Plane{1, end - begin, 0, m.y_stride(0), 0, m.x_stride(0)});
    });
  } else {
    const int64_t size = m.shape.shape[0];
    in_parallel(size, grain_rows(m.count / size), [&](int64_t begin, int64_t end) {
      Move part = m;
      part.shape.shape[0] = end - begin;
      move_dimensions(part, 0, y + begin * m.y_stride(0), x + begin * m.x_stride(0));
    });
  }
}

// Bits only, so elements of one size are moved by the same code.
void move_bits(const Move& m) {
  switch (dtype_size(m.to)) {
    case 1:
      return move_all<uint8_t, uint8_t>(m);
    case 2:
      return move_all<uint16_t, uint16_t>(m);
    case 4:
      return move_all<uint32_t, uint32_t>(m);
    default:
      return move_all<uint64_t, uint64_t>(m);
  }
}

}  // namespace

Status move_cpu(const Move& m, const LaunchContext&) {
  if (m.count == 0) return Status::ok();
  if (m.from == m.to) {
    move_bits(m);
    return Status::ok();
  }
  with_type(m.from, [&](auto from) {
    with_type(m.to, [&](auto to) {
      using From = typename decltype(from)::type;
      using To = typename decltype(to)::type;
      if constexpr (!std::is_same_v<To, From>) move_all<To, From>(m);
    });
  });
  return Status::ok();
}

Status moves_cpu(const Moves& moves, const LaunchContext& ctx) {
  for (const Move& m : moves) AICF_TRY(move_cpu(m, ctx));
  return Status::ok();
}

}  // namespace aicf
