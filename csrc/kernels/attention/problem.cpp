#include "kernels/attention/problem.h"

#include <cmath>
#include <string_view>

#include "kernels/common/strided_shape.h"

namespace aicf {
namespace {

template <class Pointer>
Heads<Pointer> heads_of(const TensorDesc& t) {
  if (t.numel() == 0) return {t.data, 0, 0, 0, 0};  // its strides mean nothing
  const auto stride = [&](int d) { return t.shape[d] == 1 ? 0 : t.strides[d]; };
  return {t.data, stride(0), stride(1), stride(2), t.shape[3] == 1 ? 1 : t.strides[3]};
}

void read_mask(const TensorDesc& mask, DType dtype, AttentionProblem* p) {
  const auto stride = [&](int d) { return mask.numel() ? broadcast_stride(mask, 4, d) : 0; };
  p->mask = {mask.data, stride(0), stride(1), stride(2), stride(3)};
  p->mask_kind = mask.dtype == DType::I1 ? MaskKind::Seen
                 : mask.dtype == dtype   ? MaskKind::Added
                                         : MaskKind::AddedWide;
}

}  // namespace

AttentionProblem attention_problem(const OpDesc& op) {
  const TensorDesc &query = op.in("query"), &key = op.in("key"), &value = op.in("value");
  AttentionProblem p{};
  p.dtype = query.dtype;
  p.batch = query.shape[0];
  p.heads = query.shape[1];
  p.key_heads = key.shape[1];
  p.queries = query.shape[2];
  p.keys = key.shape[2];
  p.size = query.shape[3];
  p.value_size = value.shape[3];
  p.causal = op.attrs.get(kCausal);
  p.scale = op.attrs.get(kScale);
  p.query = heads_of<const void*>(query);
  p.key = heads_of<const void*>(key);
  p.value = heads_of<const void*>(value);
  if (op.has_in("mask")) read_mask(op.in("mask"), query.dtype, &p);
  p.kept = 1;
  if (op.has_in("random")) {
    const double dropped = op.attrs.get(kDropped);
    p.random = static_cast<const int64_t*>(op.in("random").data);
    p.site = static_cast<uint32_t>(op.attrs.get(kSite));
    p.limit = static_cast<uint32_t>(std::nearbyint(dropped * 65536)) << 16;
    p.kept = 1 / (1 - dropped);
  }
  if (op.schema->outputs[0].name == std::string_view("out")) {  // attention
    p.out = heads_of<void*>(op.out("out"));
    p.largest = op.out("largest").data;
    p.total = op.out("total").data;
  } else {
    p.dout = heads_of<const void*>(op.in("dout"));
    p.saved = heads_of<const void*>(op.in("out"));
    p.largest = op.in("largest").data;
    p.total = op.in("total").data;
    if (op.schema->outputs[0].name == std::string_view("dmask")) {
      const TensorDesc& dmask = op.out("dmask");
      p.dmask = dmask.data;
      p.dmask_wide = dmask.dtype != query.dtype;
      p.dmask_images = dmask.shape[0];
      p.dmask_heads = dmask.shape[1];
      return p;
    }
    p.dquery = heads_of<void*>(op.out("dquery"));
    p.dkey = heads_of<void*>(op.out("dkey"));
    p.dvalue = heads_of<void*>(op.out("dvalue"));
  }
  return p;
}

}  // namespace aicf
