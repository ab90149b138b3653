// The gradient of a mask on the CPU: a task has some queries of a matrix of the mask, and adds up the
// gradients of their scores over the images and heads that share the matrix, in order.
#include "kernels/attention/cpu_slopes.h"
#include "kernels/attention/launch.h"

namespace aicf {
namespace {

using namespace cpu;

template <class C>
struct Scratch {
  C *weights, *slopes, *sums, *query, *dout, *key, *value;

  static int64_t elements(const AttentionProblem& p) {
    const Blocks block(p);
    return 3 * block.queries * block.keys + (block.queries + block.keys) * (p.size + p.value_size);
  }
  Scratch(const AttentionProblem& p, const Blocks& block, C* memory)
      : weights(memory),
        slopes(weights + block.queries * block.keys),
        sums(slopes + block.queries * block.keys),
        query(sums + block.queries * block.keys),
        dout(query + block.queries * p.size),
        key(dout + block.queries * p.value_size),
        value(key + block.keys * p.size) {}
};

int64_t tasks_of(const AttentionProblem& p) {
  return p.dmask_images * p.dmask_heads * blocks_of(p.queries, kQueryBlock);
}

Shares shares_of(const AttentionProblem& p) { return {tasks_of(p), Scratch<float>::elements(p)}; }

// A block of queries and keys of head (b, h): the gradients of their scores are added to the sums.
template <class T>
void add_slopes(const AttentionProblem& p, const Scratch<Compute<T>>& scratch, int64_t b, int64_t h,
                int64_t i, int64_t rows, int64_t from, int64_t count) {
  using C = Compute<T>;
  const int64_t pitch = Blocks(p).keys, group = h / p.group();
  const Matrix<C> query = matrix_of<T>(p.query, b, h, i, rows, p.size, scratch.query);
  const Matrix<C> dout = matrix_of<T>(p.dout, b, h, i, rows, p.value_size, scratch.dout);
  const Matrix<C> key = matrix_of<T>(p.key, b, group, from, count, p.size, scratch.key);
  const Matrix<C> value = matrix_of<T>(p.value, b, group, from, count, p.value_size, scratch.value);
  multiply(rows, count, p.size, false, true, query, key, scratch.weights, pitch, false);
  multiply(rows, count, p.value_size, false, true, dout, value, scratch.slopes, pitch, false);
  const Kept kept(p, b, h, i, rows, from, count);
  for (int64_t r = 0; r < rows; ++r) {
    C *slopes = scratch.slopes + r * pitch, *sums = scratch.sums + r * pitch;
    differentiate_row<T>(p, b, h, i + r, from, count, dout.data + r * dout.leading, kept.at[r],
                         scratch.weights + r * pitch, slopes);
    for (int64_t j = 0; j < count; ++j) sums[j] += slopes[j];
  }
}

// M: the type of dmask.
template <class T, class M>
void sum_mask(const AttentionProblem& p, int64_t task, Compute<T>* memory) {
  using C = Compute<T>;
  const Scratch<C> scratch(p, Blocks(p), memory);
  const int64_t pitch = Blocks(p).keys, blocks = blocks_of(p.queries, kQueryBlock), matrix = task / blocks;
  const int64_t i = task % blocks * kQueryBlock, rows = std::min(kQueryBlock, p.queries - i);
  const MaskMatrix shared(p, matrix);
  M* out = static_cast<M*>(p.dmask) + (matrix * p.queries + i) * p.keys;
  for (int64_t from = 0; from < p.keys; from += kKeyBlock) {
    const int64_t count = std::min(kKeyBlock, p.keys - from);
    std::fill_n(scratch.sums, rows * pitch, C(0));
    for (int64_t n = 0; n < shared.count; ++n)
      add_slopes<T>(p, scratch, shared.image(n), shared.head(n), i, rows, from, count);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < count; ++j) out[r * p.keys + from + j] = narrow<M>(scratch.sums[r * pitch + j]);
  }
}

}  // namespace

size_t attention_mask_grad_cpu_workspace(const OpDesc& op) {
  const AttentionProblem p = attention_problem(op);
  const Shares shares = shares_of(p);
  return static_cast<size_t>(shares.count * shares.scratch) * (p.dtype == DType::F64 ? 8 : 4);
}

Status attention_mask_grad_cpu(const AttentionProblem& p, const LaunchContext& ctx) {
  AICF_TRY(needs_blas());
  return with_float_type(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const double products = double(p.rows()) * double(p.keys) * double(p.size + p.value_size);
    shares_of(p).run(tasks_of(p), products, static_cast<Compute<T>*>(ctx.workspace),
                     [&](int64_t task, Compute<T>* memory) {
                       if (p.dmask_wide)
                         sum_mask<T, Compute<T>>(p, task, memory);
                       else
                         sum_mask<T, T>(p, task, memory);
                     });
  });
}

}  // namespace aicf
