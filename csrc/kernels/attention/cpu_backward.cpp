// The gradient of attention on the CPU: for each head of keys a pass over its blocks of keys, and for each of
// these over the queries that see it. What the keys of a share give dquery is summed apart, and the shares
// are added in order.
#include "kernels/attention/cpu_slopes.h"
#include "kernels/attention/launch.h"

namespace aicf {
namespace {

using namespace cpu;

// How the keys of a head are divided where there are few heads: each chunk has a dquery of its own.
struct Chunks {
  int64_t count, keys;  // of chunks; of a chunk, the last one may have fewer
  explicit Chunks(const AttentionProblem& p) {
    constexpr int64_t kEnough = 16;  // tasks
    const int64_t heads = std::max<int64_t>(p.batch * p.key_heads, 1);
    const int64_t blocks = std::max<int64_t>(blocks_of(p.keys, kKeyBlock), 1);
    const int64_t wanted = std::clamp<int64_t>(kEnough / heads, 1, blocks);
    keys = blocks_of(blocks, wanted) * kKeyBlock;
    count = std::max<int64_t>(blocks_of(p.keys, keys), 1);
  }
};

template <class C>
struct Scratch {
  C *weights, *slopes, *dkey, *dvalue, *query, *dout, *key, *value;

  static int64_t elements(const AttentionProblem& p) {
    const Blocks block(p);
    return 2 * block.queries * block.keys + (2 * block.keys + block.queries) * (p.size + p.value_size);
  }
  Scratch(const AttentionProblem& p, const Blocks& block, C* memory)
      : weights(memory),
        slopes(weights + block.queries * block.keys),
        dkey(slopes + block.queries * block.keys),
        dvalue(dkey + block.keys * p.size),
        query(dvalue + block.keys * p.value_size),
        dout(query + block.queries * p.size),
        key(dout + block.queries * p.value_size),
        value(key + block.keys * p.size) {}
};

int64_t tasks_of(const AttentionProblem& p) { return p.batch * p.key_heads * Chunks(p).count; }

Shares shares_of(const AttentionProblem& p) { return {tasks_of(p), Scratch<float>::elements(p)}; }

template <class C>
struct KeyBlock {
  int64_t b, group, first, count;
  Matrix<C> key, value;
};

// What the queries of head `h` give the keys of a block, and take from them.
template <class T>
void differentiate(const AttentionProblem& p, const Scratch<Compute<T>>& scratch,
                   const KeyBlock<Compute<T>>& block, int64_t h, Compute<T>* dquery) {
  using C = Compute<T>;
  const int64_t b = block.b, pitch = Blocks(p).keys;
  for (int64_t i = p.causal ? block.first : 0; i < p.queries; i += kQueryBlock) {
    const int64_t rows = std::min(kQueryBlock, p.queries - i);
    const int64_t count = seen(p, i + rows - 1, block.first, block.count);
    const Matrix<C> query = matrix_of<T>(p.query, b, h, i, rows, p.size, scratch.query);
    const Matrix<C> dout = matrix_of<T>(p.dout, b, h, i, rows, p.value_size, scratch.dout);
    const Matrix<C> weights{scratch.weights, pitch}, slopes{scratch.slopes, pitch};
    multiply(rows, count, p.size, false, true, query, block.key, scratch.weights, pitch, false);
    multiply(rows, count, p.value_size, false, true, dout, block.value, scratch.slopes, pitch, false);
    const Kept kept(p, b, h, i, rows, block.first, count);
    for (int64_t r = 0; r < rows; ++r)
      differentiate_row<T>(p, b, h, i + r, block.first, count, dout.data + r * dout.leading, kept.at[r],
                           scratch.weights + r * pitch, scratch.slopes + r * pitch);
    multiply(count, p.value_size, rows, true, false, weights, dout, scratch.dvalue, p.value_size, true);
    multiply(count, p.size, rows, true, false, slopes, query, scratch.dkey, p.size, true);
    multiply(rows, p.size, count, false, false, slopes, block.key, dquery + i * p.size, p.size, true);
  }
}

// The keys of one chunk of a head. `partial`: [chunks, batch, heads, queries, size].
template <class T>
void differentiate(const AttentionProblem& p, const Chunks& chunks, int64_t task, Compute<T>* memory,
                   Compute<T>* partial) {
  using C = Compute<T>;
  const Scratch<C> scratch(p, Blocks(p), memory);
  const int64_t chunk = task % chunks.count, head = task / chunks.count;
  const int64_t b = head / p.key_heads, group = head % p.key_heads, of_head = p.queries * p.size;
  C* dquery = partial + ((chunk * p.batch + b) * p.heads + group * p.group()) * of_head;
  std::fill_n(dquery, p.group() * of_head, C(0));
  const C scale = static_cast<C>(p.scale);
  const int64_t end = std::min(p.keys, (chunk + 1) * chunks.keys);
  for (int64_t first = chunk * chunks.keys; first < end; first += kKeyBlock) {
    const int64_t count = std::min(kKeyBlock, end - first);
    const KeyBlock<C> block{b,
                            group,
                            first,
                            count,
                            matrix_of<T>(p.key, b, group, first, count, p.size, scratch.key),
                            matrix_of<T>(p.value, b, group, first, count, p.value_size, scratch.value)};
    std::fill_n(scratch.dkey, count * p.size, C(0));
    std::fill_n(scratch.dvalue, count * p.value_size, C(0));
    for (int64_t g = 0; g < p.group(); ++g)
      differentiate<T>(p, scratch, block, group * p.group() + g, dquery + g * of_head);
    store_rows<T>(p.dkey, b, group, first, count, p.size,
                  [&](int64_t r, int64_t c) { return scale * scratch.dkey[r * p.size + c]; });
    store_rows<T>(p.dvalue, b, group, first, count, p.value_size,
                  [&](int64_t r, int64_t c) { return scratch.dvalue[r * p.value_size + c]; });
  }
}

// The chunks of dquery, in order.
template <class T>
void add_chunks(const AttentionProblem& p, int64_t chunks, const Compute<T>* partial) {
  using C = Compute<T>;
  const C scale = static_cast<C>(p.scale);
  const int64_t all = p.rows() * p.size;
  in_parallel(p.rows(), grain_rows(p.size * chunks), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t head = row / p.queries;
      const C* parts = partial + row * p.size;
      store_rows<T>(p.dquery, head / p.heads, head % p.heads, row % p.queries, 1, p.size,
                    [&](int64_t, int64_t c) {
                      C sum = parts[c];
                      for (int64_t chunk = 1; chunk < chunks; ++chunk) sum += parts[chunk * all + c];
                      return scale * sum;
                    });
    }
  });
}

}  // namespace

size_t attention_grad_cpu_workspace(const OpDesc& op) {
  const AttentionProblem p = attention_problem(op);
  const Shares shares = shares_of(p);
  const int64_t elements = shares.count * shares.scratch + Chunks(p).count * p.rows() * p.size;
  return static_cast<size_t>(elements) * (p.dtype == DType::F64 ? 8 : 4);
}

Status attention_grad_cpu(const AttentionProblem& p, const LaunchContext& ctx) {
  AICF_TRY(needs_blas());
  return with_float_type(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Shares shares = shares_of(p);
    const Chunks chunks(p);
    auto* memory = static_cast<Compute<T>*>(ctx.workspace);
    Compute<T>* partial = memory + shares.count * shares.scratch;
    const double products = double(p.rows()) * double(p.keys) * double(3 * p.size + 2 * p.value_size);
    shares.run(tasks_of(p), products, memory,
               [&](int64_t task, Compute<T>* own) { differentiate<T>(p, chunks, task, own, partial); });
    add_chunks<T>(p, chunks.count, partial);
  });
}

}  // namespace aicf
