// What gemm_epilogue does after the product, on the CPU: bias, pre-activation, activation or its gradient,
// bias gradient.
#pragma once
#include "kernels/common/cpu_chunks.h"
#include "kernels/common/cpu_sum.h"
#include "kernels/eltwise/ops.h"
#include "kernels/gemm/problem.h"

namespace aicf::cpu {

// A block of z = op(a) op(b): `rows` times `columns` elements without gaps, the first of them element
// `offset` of the result and of its column `column`. `z` may be the result's own memory.
template <class T>
struct Block {
  Compute<T>* z;
  int64_t offset, column, rows, columns;
};

template <class T, class Op>
void store_activated(Op op, const Compute<T>* z, T* out, int64_t n) {
  Chunk<T> results;
  for_each_chunk<T>(n, [&](int64_t start, int64_t count) {
    Compute<T>* to = results.target(out + start);
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) to[i] = op(z[start + i]);
    results.store(out + start, count);
  });
}

template <class T, class Op>
void store_gradient(Op op, const Compute<T>* z, const T* saved, T* out, int64_t n) {
  Chunk<T> forward, results;
  for_each_chunk<T>(n, [&](int64_t start, int64_t count) {
    const Compute<T>* from = forward.load(saved + start, count);
    Compute<T>* to = results.target(out + start);
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) to[i] = op(z[start + i], from[i]);
    results.store(out + start, count);
  });
}

// Turns z into the results; z itself becomes z + bias.
template <class T>
void finish_block(const GemmProblem& p, const Block<T>& block) {
  const int64_t n = block.rows * block.columns;
  Compute<T>* z = block.z;
  T* out = static_cast<T*>(p.out) + block.offset;
  if (p.bias) {
    const T* bias = static_cast<const T*>(p.bias) + block.column;
    for (int64_t i = 0; i < block.rows; ++i)
#pragma GCC ivdep
      for (int64_t j = 0; j < block.columns; ++j) z[i * block.columns + j] += widen(bias[j]);
  }
  if (p.pre) store_activated<T>(ops::identity{}, z, static_cast<T*>(p.pre) + block.offset, n);
  switch (p.act) {
#define X(value, forward, backward) \
  case Act::value:                  \
    return store_activated<T>(ops::forward{}, z, out, n);
    AICF_ACTIVATIONS(X)
#undef X
    case Act::None:
      break;
  }
  switch (p.act_grad) {
#define X(value, forward, backward) \
  case Act::value:                  \
    return store_gradient<T>(ops::backward{}, z, static_cast<const T*>(p.saved) + block.offset, out, n);
    AICF_ACTIVATIONS(X)
#undef X
    case Act::None:
      break;
  }
  if (static_cast<void*>(z) != static_cast<void*>(out)) store_activated<T>(ops::identity{}, z, out, n);
}

// bias_grad[i] = sum over l of op(a)[i, l].
template <class T>
void store_bias_grad(const GemmProblem& p) {
  if (!p.bias_grad) return;
  const T* a = static_cast<const T*>(p.a);
  T* result = static_cast<T*>(p.bias_grad);
  if (!p.trans_a) {
    for (int64_t i = 0; i < p.m; ++i) {
      const T* row = a + i * p.lda;
      result[i] = narrow_double<T>(sum_terms<Compute<T>>(p.k, [row](int64_t l) { return widen(row[l]); }));
    }
    return;
  }
  double total[kSumColumns];
  for (int64_t first = 0; first < p.m; first += kSumColumns) {
    const int64_t columns = std::min(kSumColumns, p.m - first);
    sum_columns<T>(p.k, columns, [&](int64_t l) { return a + l * p.lda + first; }, total);
    for (int64_t j = 0; j < columns; ++j) result[first + j] = narrow_double<T>(total[j]);
  }
}

}  // namespace aicf::cpu
