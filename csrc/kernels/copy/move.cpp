#include "kernels/copy/move.h"

#include <utility>

namespace aicf {
namespace {

Move move_of(const TensorDesc& x, const TensorDesc& y) {
  Move move{x.dtype, y.dtype, x.data, y.data, y.numel(), {}};
  if (move.count == 0) return move;
  StridedShape<2>& shape = move.shape;
  const std::vector<int> inner_first = y.by_stride();
  for (auto d = inner_first.rbegin(); d != inner_first.rend(); ++d)
    shape.append(y.shape[*d], {y.strides[*d], x.strides[*d]});

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

Move copy_move(const OpDesc& op) { return move_of(op.in("x"), op.out("y")); }

Moves copy_moves(const OpDesc& op) {
  const Tensors xs = op.ins("x"), ys = op.outs("x");
  Moves moves;
  for (size_t i = 0; i < xs.size(); ++i) moves.push_back(move_of(xs[i], ys[i]));
  return moves;
}

}  // namespace aicf
