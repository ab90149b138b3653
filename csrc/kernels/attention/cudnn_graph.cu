// The nodes stand in the order that cuDNN's own engines for attention look for.
#include "kernels/attention/cudnn_graph.h"

namespace aicf {

using namespace cudnn;

namespace {

constexpr int64_t kFirstVirtual = 100, kAlignment = 16;
using Value = Operations::Value;
using Shape = Operations::Shape;

struct Builder {
  const AttentionGraph& g;
  Operations& ops;
  const Shape scores{g.batch, g.heads, g.queries, g.keys};
  const Shape rows{g.batch, g.heads, g.queries, 1};

  Value operand(AttentionGraph::Id id, int64_t heads, int64_t count, int64_t columns) const {
    return ops.stored({id, g.type, {g.batch, heads, count, columns}, g.strides[id], kAlignment});
  }
  // [batch, heads, columns, rows], the same memory.
  Value transposed(AttentionGraph::Id id, int64_t heads, int64_t count, int64_t columns) const {
    Shape strides = g.strides[id];
    std::swap(strides[2], strides[3]);
    return ops.stored({id, g.type, {g.batch, heads, columns, count}, strides, kAlignment});
  }
  Value row(AttentionGraph::Id id) const {
    return ops.stored({id, kF32, rows, {g.heads * g.queries, g.queries, 1, 1}, kAlignment});
  }
  Value score() const { return ops.between(kF32, scores); }

  // scale * query keyT, and the bias
  Value scaled(Value query, Value key, Value scale) const {
    const Value product = score(), out = score();
    ops.multiply(query, key, product);
    ops.map(kMultiply, product, scale, out);
    if (g.bias_shape.empty()) return out;
    const Value biased = score();
    ops.map(kAdd, out,
            ops.stored({AttentionGraph::kBias, g.bias_type, g.bias_shape, g.bias_strides, kAlignment}),
            biased);
    return biased;
  }
  // x where its key is not behind its query, else -infinity.
  Value shown(Value x) const {
    if (!g.causal) return x;
    const Value hidden = ops.number(AttentionGraph::kHiddenNumber);
    const Value i = ops.between(kInt32, scores), j = ops.between(kInt32, scores);
    const Value seen = ops.between(kBool, scores), out = score();
    ops.map(kIndex, x, i, nullptr, nullptr, 2);
    ops.map(kIndex, x, j, nullptr, nullptr, 3);
    ops.map(kGreaterOrEqual, i, j, seen);
    ops.map(kSelect, x, out, &hidden, &seen);
    return out;
  }

  void forward() const {
    const Value query = operand(AttentionGraph::kQuery, g.heads, g.queries, g.size);
    const Value key = transposed(AttentionGraph::kKey, g.key_heads, g.keys, g.size);
    const Value value = operand(AttentionGraph::kValue, g.key_heads, g.keys, g.value_size);
    const Value x = shown(scaled(query, key, ops.number(AttentionGraph::kScaleNumber)));
    const Value largest = row(AttentionGraph::kLargest), total = row(AttentionGraph::kTotal);
    const Value shifted = score(), power = score(), weights = ops.between(g.type, scores);
    ops.reduce(kMaximum, x, largest);
    ops.map(kSubtract, x, largest, shifted);
    ops.map(kExp, shifted, power);
    ops.reduce(kSum, power, total);
    ops.map(kDivide, power, total, weights);
    ops.multiply(weights, value, operand(AttentionGraph::kOut, g.heads, g.queries, g.value_size));
  }

  // The gradient of keys or values: `columns` of each head of queries, summed over the heads that share them.
  void of_keys(Value x, Value y, AttentionGraph::Id id, int64_t columns) const {
    const Shape turned{g.batch, g.heads, g.keys, g.queries};
    const int64_t all = g.queries * g.keys;
    const Value xt = ops.between(g.type, turned, {g.heads * all, all, 1, g.keys});
    const Value out = operand(id, g.key_heads, g.keys, columns);
    ops.reshape(x, xt);
    if (g.heads == g.key_heads) return ops.multiply(xt, y, out);
    const Value of_heads = ops.between(g.type, {g.batch, g.heads, g.keys, columns});
    ops.multiply(xt, y, of_heads);
    ops.reduce(kSum, of_heads, out);
  }

  void gradient() const {
    const Value dout = operand(AttentionGraph::kDout, g.heads, g.queries, g.value_size);
    const Value out = operand(AttentionGraph::kOut, g.heads, g.queries, g.value_size);
    const Value products = ops.between(kF32, {g.batch, g.heads, g.queries, g.value_size});
    const Value sums = ops.between(kF32, rows), delta = row(AttentionGraph::kDelta);
    ops.map(kMultiply, dout, out, products);
    ops.reduce(kSum, products, sums);
    ops.map(kMultiply, sums, ops.number(AttentionGraph::kOneNumber), delta);

    const Value query = operand(AttentionGraph::kQuery, g.heads, g.queries, g.size);
    const Value key = transposed(AttentionGraph::kKey, g.key_heads, g.keys, g.size);
    const Value value = transposed(AttentionGraph::kValue, g.key_heads, g.keys, g.value_size);
    const Value scale = ops.number(AttentionGraph::kScaleNumber), shifted = score(), weights = score();
    ops.map(kSubtract, scaled(query, key, scale), row(AttentionGraph::kStatistic), shifted);
    ops.map(kExp, shown(shifted), weights);
    of_keys(weights, dout, AttentionGraph::kDvalue, g.value_size);

    const Value dweights = score(), centred = score(), slopes = score(), dscores = score();
    ops.multiply(dout, value, dweights);
    ops.map(kSubtract, dweights, delta, centred);
    ops.map(kMultiply, centred, weights, slopes);
    ops.map(kMultiply, slopes, scale, dscores);
    of_keys(dscores, query, AttentionGraph::kDkey, g.size);

    const Value keys =
        ops.between(g.type, {g.batch, g.key_heads, g.keys, g.size}, g.strides[AttentionGraph::kKey]);
    ops.reshape(key, keys);
    ops.multiply(dscores, keys, operand(AttentionGraph::kDquery, g.heads, g.queries, g.size));
  }
};

}  // namespace

Status AttentionGraph::describe(Described* out) const {
  Operations operations(kFirstVirtual);
  const Builder builder{*this, operations};
  is_grad ? builder.gradient() : builder.forward();
  return operations.finish(out);
}

std::vector<int64_t> AttentionGraph::ids() const {
  std::vector<int64_t> ids{kQuery, kKey, kValue, kOut, kScaleNumber};
  if (!bias_shape.empty()) ids.push_back(kBias);
  if (causal) ids.push_back(kHiddenNumber);
  if (is_grad)
    ids.insert(ids.end(), {kStatistic, kDout, kDelta, kDquery, kDkey, kDvalue, kOneNumber});
  else
    ids.insert(ids.end(), {kLargest, kTotal});
  return ids;
}

}  // namespace aicf
