#include "kernels/copy/move.h"

#include <utility>

namespace aicf {
namespace {

// x_strides: those of x along the dimensions of y.
Move make_move(const TensorDesc& y, const TensorDesc& x, const int64_t* x_strides) {
  Move move{x.dtype, y.dtype, x.data, y.data, y.numel(), {}};
  if (move.count == 0) return move;
  StridedShape<2>& shape = move.shape;
  const std::vector<int> inner_first = y.by_stride();
  for (auto d = inner_first.rbegin(); d != inner_first.rend(); ++d)
    shape.append(y.shape[*d], {y.strides[*d], x_strides[*d]});

  int nearest = shape.rank - 1;  // the dimension along which x's neighbours are
  for (int d = 0; d < shape.rank - 1; ++d)
    if (shape.strides[1][d] > 0 && shape.strides[1][d] < shape.strides[1][nearest]) nearest = d;
  for (int d = nearest; d < shape.rank - 2; ++d) {
    std::swap(shape.shape[d], shape.shape[d + 1]);
    for (int64_t (&strides)[kMaxRank] : shape.strides) std::swap(strides[d], strides[d + 1]);
  }
  return move;
}

}  // namespace

Move copy_move(const OpDesc& op) { return make_move(op.outputs[0], op.inputs[0], op.inputs[0].strides); }

Move transpose_move(const OpDesc& op) {
  const TensorDesc& x = op.inputs[0];
  const std::vector<int64_t>& perm = op.attrs.get(kPerm);
  int64_t strides[kMaxRank] = {};
  for (size_t d = 0; d < perm.size(); ++d) strides[d] = x.strides[perm[d]];
  return make_move(op.outputs[0], x, strides);
}

Move broadcast_move(const OpDesc& op) {
  const TensorDesc &x = op.inputs[0], &y = op.outputs[0];
  int64_t strides[kMaxRank] = {};
  for (int d = 0; d < y.rank; ++d) strides[d] = broadcast_stride(x, y.rank, d);
  return make_move(y, x, strides);
}

}  // namespace aicf
