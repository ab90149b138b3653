#include "kernels/copy/move.h"

#include <utility>

namespace aicf {

Move copy_move(const OpDesc& op) {
  const TensorDesc &x = op.in("x"), &y = op.out("y");
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

}  // namespace aicf
