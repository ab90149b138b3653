// One launch of attention or attention_grad in the form that every kernel needs: sizes, heads, mask. Read
// from a checked OpDesc.
#pragma once
#include <cstdint>

#include "kernels/eltwise/ops.h"
#include "op/variant.h"

namespace aicf {

constexpr Attr<bool> kCausal{"causal", false};
constexpr Attr<double> kScale{"scale", std::nullopt};
constexpr Attr<double> kDropped{"p", 0.0};
constexpr Attr<int64_t> kSite{"site", 0};

// An operand [batch, heads, rows, columns] with strides of its own, in elements.
template <class Pointer>
struct Heads {
  Pointer data;  // null without the operand
  int64_t batch, head, row, column;

  // The first element of the rows of one head; T is const for an operand.
  template <class T>
  AICF_HD T* of(int64_t b, int64_t h) const {
    return static_cast<T*>(data) + (b * batch + h * head);
  }
};

// What stands in a mask: nothing, whether a query sees a key, or what is added to the score, in the type of
// the queries or in the one that they are computed in.
enum class MaskKind : uint8_t { None, Seen, Added, AddedWide };

// For each query i of each head, and each key j of its group's head:
//   score[i, j] = scale * sum over d of query[i, d] key[j, d] (+ mask[i, j]); a mask that is false adds
//                 -infinity, and a key that `causal` hides (j > i) is not there
//   largest[i] = the largest score[i, j];  total[i] = sum over j of exp(score[i, j] - largest[i])
//   weight[i, j] = exp(score[i, j] - largest[i]) / total[i];  out[i] = sum over j of left[i, j] value[j]
//   left[i, j] = weight[i, j], with dropout 0 or `kept` times it (draws.h)
// A query that sees nothing has weights of 0: its largest is 0 and its total 1. Where a score is NaN or
// infinity both are NaN. The two numbers stay apart: next to a largest score of 1e9 the logarithm of the
// total is less than half a unit in the last place, and would be lost in their sum.
// Gradient, with delta[i] = sum over d of dout[i, d] out[i, d]:
//   dvalue[j] = sum over i of left[i, j] dout[i]
//   dscore[i, j] = weight[i, j] (slope[i, j] - delta[i])
//   slope[i, j] = sum over d of dout[i, d] value[j, d], with dropout 0 or `kept` times it
//   dquery[i] = scale * sum over j of dscore[i, j] key[j]
//   dkey[j] = scale * sum over i of dscore[i, j] query[i]
//   dmask[i, j] = sum of dscore[i, j] over the images and heads that share one matrix of the mask
// Scores, weights and sums are computed in f32 (f64 for f64). heads is a multiple of key_heads: head h reads
// keys and values of head h / group().
struct AttentionProblem {
  DType dtype;
  int64_t batch, heads, key_heads, queries, keys;
  int64_t size, value_size;  // of a query and a key, of a value
  bool causal;
  double scale;
  Heads<const void*> query, key, value;
  Heads<const void*> mask;  // rows are queries, columns keys; 0 where it repeats
  MaskKind mask_kind;
  const int64_t* random;  // of dropout: [seed, steps taken]; null without it
  uint32_t site;          // which draw of the step
  uint32_t limit;         // a weight is dropped where 2^16 times its number of 16 bits is below it
  double kept;            // 1 / (1 - p)
  Heads<void*> out;       // of attention
  void *largest, *total;  // [batch, heads, queries] in the type that is computed in; operands of the gradient
  Heads<const void*> dout, saved;  // of the gradient: that of out, and out
  Heads<void*> dquery, dkey, dvalue;
  void* dmask;      // of attention_mask_grad: [images, heads, queries, keys], each of the first two all or 1
  bool dmask_wide;  // in the type that is computed in, else in the one of the queries
  int64_t dmask_images, dmask_heads;
  // For each head of keys [batch, key_heads], whether attention_grad_hopper_chosen computes its gradients.
  const int32_t* chosen;

  AICF_HD bool chooses(int64_t b, int64_t key_head) const { return chosen[b * key_heads + key_head] != 0; }
  AICF_HD int64_t group() const { return heads / key_heads; }
  AICF_HD int64_t rows() const { return batch * heads * queries; }
};

// The images and heads that share one matrix of a mask.
struct MaskMatrix {
  int64_t count;
  AICF_HD MaskMatrix(const AttentionProblem& p, int64_t matrix)
      : count((p.dmask_images == 1 ? p.batch : 1) * (p.dmask_heads == 1 ? p.heads : 1)),
        first_image(p.dmask_images == 1 ? 0 : matrix / p.dmask_heads),
        first_head(p.dmask_heads == 1 ? 0 : matrix % p.dmask_heads),
        heads(p.dmask_heads == 1 ? p.heads : 1) {}

  // Of the n-th of them.
  AICF_HD int64_t image(int64_t n) const { return first_image + n / heads; }
  AICF_HD int64_t head(int64_t n) const { return first_head + n % heads; }

 private:
  int64_t first_image, first_head, heads;
};

// The number that is kept of a row from its largest score and the sum of exp(score - largest).
template <class C>
AICF_HD C largest_kept(C largest, C sum) {
  if (sum == C(0)) return C(0);
  return sum == sum ? largest : sum;
}

AttentionProblem attention_problem(const OpDesc& op);

}  // namespace aicf
