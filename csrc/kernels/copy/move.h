// A copy between two layouts: every element of y from its place in x. Host code, in every build.
#pragma once
#include <vector>

#include "kernels/common/strided_shape.h"
#include "op/variant.h"

namespace aicf {

// Strides of y stand before those of x. Dimensions are merged, and in the order of y's memory, so that the
// last one is where y's neighbours are; the one before it is where x's are, if that is another
// (`transposed`).
struct Move {
  DType from, to;
  const void* x;
  void* y;
  int64_t count;  // elements of y
  StridedShape<2> shape;

  int64_t y_stride(int d) const { return shape.strides[0][d]; }
  int64_t x_stride(int d) const { return shape.strides[1][d]; }
  // Whether neighbours of y are neighbours of x.
  bool rows() const {
    return shape.rank == 0 || (y_stride(shape.rank - 1) == 1 && x_stride(shape.rank - 1) == 1);
  }
  bool transposed() const {
    return shape.rank > 1 && x_stride(shape.rank - 2) > 0 &&
           x_stride(shape.rank - 2) < x_stride(shape.rank - 1);
  }
};

Move copy_move(const OpDesc& op);

// All of a multi_tensor_copy.
using Moves = std::vector<Move>;
Moves copy_moves(const OpDesc& op);

constexpr size_t kMostMoves = 15;  // of a launch: their shapes are its parameters

}  // namespace aicf
