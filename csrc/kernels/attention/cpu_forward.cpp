// attention on the CPU: for each block of queries one pass over the keys with a running largest score, so
// that a block of scores is all that is ever there.
#include "kernels/attention/cpu_blocks.h"
#include "kernels/attention/launch.h"
#include "kernels/common/cpu_rows.h"

namespace aicf {
namespace {

using namespace cpu;

// Memory of one share.
template <class C>
struct Scratch {
  C *scores, *sums, *query, *key, *value;

  static int64_t elements(const AttentionProblem& p) {
    const Blocks block(p);
    return block.queries * (block.keys + p.value_size + p.size) + block.keys * (p.size + p.value_size);
  }
  Scratch(const AttentionProblem& p, const Blocks& block, C* memory)
      : scores(memory),
        sums(scores + block.queries * block.keys),
        query(sums + block.queries * p.value_size),
        key(query + block.queries * p.size),
        value(key + block.keys * p.size) {}
};

int64_t tasks_of(const AttentionProblem& p) { return p.batch * p.heads * blocks_of(p.queries, kQueryBlock); }

Shares shares_of(const AttentionProblem& p) { return {tasks_of(p), Scratch<float>::elements(p)}; }

// What is known of a query so far.
template <class C>
struct Row {
  C largest = -std::numeric_limits<C>::infinity();
  double total = 0;  // of exp(score - largest)
};

// The scores of a row become their exponentials, and `sums` the sums of values that go with them.
template <class C>
void add_scores(C* scores, int64_t seen, int64_t count, Row<C>* row, C* sums, int64_t size) {
  const C before = row->largest, largest = std::max(before, largest_of(scores, seen));
  const C base = largest == -std::numeric_limits<C>::infinity() ? C(0) : largest;
  for (int64_t j = 0; j < seen; ++j) scores[j] = scalar::exp(scores[j] - base);
  std::fill(scores + seen, scores + count, C(0));
  const C* terms = scores;
  const double total = sum_terms<C>(seen, [=](int64_t j) { return terms[j]; });
  const C factor = scalar::exp(before - base);
  row->total = row->total * static_cast<double>(factor) + total;
  row->largest = largest;
  if (factor != C(1))
    for (int64_t c = 0; c < size; ++c) sums[c] *= factor;
}

template <class T>
void attend(const AttentionProblem& p, int64_t task, Compute<T>* memory) {
  using C = Compute<T>;
  const Blocks block(p);
  const Scratch<C> scratch(p, block, memory);
  const int64_t blocks = blocks_of(p.queries, kQueryBlock), head = task / blocks;
  const int64_t b = head / p.heads, h = head % p.heads, first = task % blocks * kQueryBlock;
  const int64_t rows = std::min(kQueryBlock, p.queries - first);
  const int64_t end = p.causal ? std::min(p.keys, first + rows) : p.keys;
  const Matrix<C> query = matrix_of<T>(p.query, b, h, first, rows, p.size, scratch.query);
  Row<C> state[kQueryBlock];
  std::fill_n(scratch.sums, rows * p.value_size, C(0));
  for (int64_t from = 0; from < end; from += kKeyBlock) {
    const int64_t count = std::min(kKeyBlock, end - from), group = h / p.group();
    const Matrix<C> key = matrix_of<T>(p.key, b, group, from, count, p.size, scratch.key);
    multiply(rows, count, p.size, false, true, query, key, scratch.scores, block.keys, false);
    const Kept kept(p, b, h, first, rows, from, count);
    for (int64_t r = 0; r < rows; ++r) {
      C* row = scratch.scores + r * block.keys;
      const int64_t shown = seen(p, first + r, from, count);
      score_row<T>(p, b, h, first + r, from, shown, row);
      add_scores(row, shown, count, &state[r], scratch.sums + r * p.value_size, p.value_size);
      if (p.random == nullptr) continue;
      for (int64_t j = 0; j < shown; ++j) row[j] = kept.at[r][j] ? row[j] : C(0);
    }
    const Matrix<C> value = matrix_of<T>(p.value, b, group, from, count, p.value_size, scratch.value);
    multiply(rows, p.value_size, count, false, false, {scratch.scores, block.keys}, value, scratch.sums,
             p.value_size, true);
  }
  C* largest = static_cast<C*>(p.largest) + head * p.queries + first;
  C* total = static_cast<C*>(p.total) + head * p.queries + first;
  for (int64_t r = 0; r < rows; ++r) {
    const auto sum = static_cast<C>(state[r].total);
    largest[r] = largest_kept(state[r].largest, sum);
    total[r] = sum == C(0) ? C(1) : sum;
  }
  store_rows<T>(p.out, b, h, first, rows, p.value_size, [&](int64_t r, int64_t c) {
    return scratch.sums[r * p.value_size + c] / total[r] * static_cast<C>(p.kept);
  });
}

}  // namespace

size_t attention_cpu_workspace(const OpDesc& op) {
  const AttentionProblem p = attention_problem(op);
  const Shares shares = shares_of(p);
  return static_cast<size_t>(shares.count * shares.scratch) * (p.dtype == DType::F64 ? 8 : 4);
}

Status attention_cpu(const AttentionProblem& p, const LaunchContext& ctx) {
  AICF_TRY(needs_blas());
  return with_float_type(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const double products = double(p.rows()) * double(p.keys) * double(p.size + p.value_size);
    shares_of(p).run(tasks_of(p), products, static_cast<Compute<T>*>(ctx.workspace),
                     [&](int64_t task, Compute<T>* memory) { attend<T>(p, task, memory); });
  });
}

}  // namespace aicf
