// What gemm_epilogue does after the product, on the CPU: bias, pre-activation, activation or its gradient,
// bias gradient.
#pragma once

#include "kernels/common/cpu_chunks.h"
#include "kernels/common/cpu_parallel.h"
#include "kernels/common/cpu_sum.h"
#include "kernels/eltwise/ops.h"
#include "kernels/gemm/problem.h"

namespace aicf::cpu {

// A block of z = op(a) op(b) from (row, column) of the result on: `rows` times `columns` elements, `pitch` of
// them from row to row. `z` may be the result's own memory.
template <class T>
struct Block {
  Compute<T>* z;
  int64_t pitch, row, column, rows, columns;
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

// Whether z is rounded before the activation, which sees the value that pre has; relu and its gradient
// choose, and are rounded behind.
template <class T>
bool rounds_first(const GemmProblem& p) {
  const auto computes = [](Act act) { return act != Act::None && act != Act::Relu; };
  return sizeof(T) == 2 && (computes(p.act) || computes(p.act_grad));
}

// Turns n elements of z + bias into the results; each pointer is to the first of them. z may be rounded to T.
template <class T>
void finish_run(const GemmProblem& p, Compute<T>* z, T* out, T* pre, const T* saved, int64_t n) {
  if (pre) store_activated<T>(ops::identity{}, z, pre, n);
  if (rounds_first<T>(p)) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) z[i] = widen(narrow<T>(z[i]));
  }
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
    return store_gradient<T>(ops::backward{}, z, saved, out, n);
    AICF_ACTIVATIONS(X)
#undef X
    case Act::None:
      break;
  }
  if (static_cast<const void*>(z) != static_cast<void*>(out)) store_activated<T>(ops::identity{}, z, out, n);
}

// The elements of an operand that belong to the block, null without the operand.
template <class T, class Pointer, class C>
T* elements_of(const Matrices<Pointer>& matrices, const Product& product, const Block<C>& block) {
  return matrices.data ? matrices.template of<T>(product) + block.row * matrices.leading + block.column
                       : nullptr;
}

template <class T>
void add_bias(Compute<T>* z, const T* bias, int64_t n) {
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) z[j] += widen(bias[j]);
}

// Turns z into the results; z itself becomes z + bias, perhaps rounded.
template <class T>
void finish_block(const GemmProblem& p, const Product& product, const Block<T>& block) {
  Compute<T>* z = block.z;
  const T* bias = p.bias ? static_cast<const T*>(p.bias) + block.column : nullptr;
  T* out = elements_of<T>(p.out, product, block);
  T* pre = elements_of<T>(p.pre, product, block);
  const T* saved = elements_of<const T>(p.saved, product, block);
  const auto gapless = [&](bool present, int64_t pitch) { return !present || pitch == block.columns; };
  const bool whole = gapless(true, block.pitch) && gapless(true, p.out.leading) &&
                     gapless(pre, p.pre.leading) && gapless(saved, p.saved.leading);
  for (int64_t i = 0; i < block.rows; ++i) {
    if (bias) add_bias(z + i * block.pitch, bias, block.columns);
    if (whole) continue;
    finish_run(p, z + i * block.pitch, out + i * p.out.leading, pre ? pre + i * p.pre.leading : nullptr,
               saved ? saved + i * p.saved.leading : nullptr, block.columns);
  }
  if (whole) finish_run(p, z, out, pre, saved, block.rows * block.columns);
}

// bias_grad[i] = sum over l of op(a)[i, l].
template <class T>
void store_bias_grad(const GemmProblem& p) {
  if (!p.bias_grad) return;
  const T* a = p.a.of<const T>(Product{0, 0});
  T* result = static_cast<T*>(p.bias_grad);
  if (!p.trans_a) {
    return in_parallel(p.m, grain_rows(p.k), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* row = a + i * p.a.leading;
        result[i] = narrow_double<T>(sum_terms<Compute<T>>(p.k, [row](int64_t l) { return widen(row[l]); }));
      }
    });
  }
  const int64_t strips = (p.m + kSumColumns - 1) / kSumColumns;
  in_parallel(strips, grain_rows(p.k * kSumColumns), [&](int64_t begin, int64_t end) {
    double total[kSumColumns];
    for (int64_t first = begin * kSumColumns; first < std::min(p.m, end * kSumColumns);
         first += kSumColumns) {
      const int64_t columns = std::min(kSumColumns, p.m - first);
      sum_columns<T>(p.k, columns, [&](int64_t l) { return a + l * p.a.leading + first; }, total);
      for (int64_t j = 0; j < columns; ++j) result[first + j] = narrow_double<T>(total[j]);
    }
  });
}

}  // namespace aicf::cpu
