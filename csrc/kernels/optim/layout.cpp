#include <algorithm>

#include "kernels/optim/step.h"

namespace aicf {

int64_t group_count(const OpDesc& op) {
  int64_t last = -1;
  for (int64_t group : op.attrs.ints(AttrKey::groups)) last = std::max(last, group);
  return last + 1;
}

SgdLayout::SgdLayout(const OpDesc& op)
    : tensors(static_cast<int64_t>(op.attrs.ints(AttrKey::groups).size())),
      groups(group_count(op)),
      momentum(op.attrs.flag(AttrKey::momentum)) {}

AdamLayout::AdamLayout(const OpDesc& op)
    : tensors(static_cast<int64_t>(op.attrs.ints(AttrKey::groups).size())),
      groups(group_count(op)),
      amsgrad(op.attrs.flag(AttrKey::amsgrad)) {}

}  // namespace aicf
