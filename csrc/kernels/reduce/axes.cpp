#include "kernels/reduce/axes.h"

#include <algorithm>

namespace aicf {

SumAxes sum_axes(const OpDesc& op) {
  const TensorDesc& x = op.inputs[0];
  const std::vector<int64_t>& dims = op.attrs.get(kDims);
  SumAxes axes{};
  axes.kept_size = axes.summed_size = 1;
  axes.inner_summed = true;
  int last = -1;  // 1: the axis appended last is summed, 0: kept
  for (int i = 0; i < x.rank; ++i) {
    bool summed = std::find(dims.begin(), dims.end(), i) != dims.end();
    (summed ? axes.summed_size : axes.kept_size) *= x.shape[i];
    if (x.shape[i] == 1) continue;
    int& count = summed ? axes.summed_count : axes.kept_count;
    Axis* list = summed ? axes.summed : axes.kept;
    if (last == int{summed}) {
      list[count - 1].size *= x.shape[i];
    } else {
      list[count++].size = x.shape[i];
    }
    last = summed;
    axes.inner_summed = summed;
  }
  // Strides, from the fastest axis outwards: the two lists alternate.
  int64_t stride = 1;
  bool summed = axes.inner_summed;
  for (int k = axes.kept_count, s = axes.summed_count; k + s > 0; summed = !summed) {
    Axis& axis = summed ? axes.summed[--s] : axes.kept[--k];
    axis.stride = stride;
    stride *= axis.size;
  }
  return axes;
}

}  // namespace aicf
