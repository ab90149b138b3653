// The matrix products that generated code calls.
#pragma once
#include <cstdint>
#include <string>

namespace aicf::cpu {

// What a gemm_map does with rows [row, row_end) and columns [column, column_end) of product `batch`.
// `addresses` are those of its launch. Columns begin and end at multiples of 16, or at the last column; so do
// rows where there are fewer than 32 columns.
using EpilogueFunction = void (*)(void* const* addresses, int64_t batch, int64_t row, int64_t row_end,
                                  int64_t column, int64_t column_end);

// z = op(a) op(b) of all products, f64 where a and b are, else f32; then the epilogue for blocks of it that
// do not overlap, by several threads. `sizes` are batch, inner_batch, m, n, k, trans_a, trans_b, and of a, b
// and z the steps leading, outer and inner, in elements: see GemmProblem. Behind them the number of operands
// that the epilogue reads by rows beside a single product, and of each its place among the addresses, the
// elements from row to row, and the bytes of an element.
using ProductFunction = void (*)(const int64_t* sizes, const void* a, const void* b, void* z,
                                 EpilogueFunction epilogue, void* const* addresses);

// "product_f32", and so of f64, f16 and bf16; null for another name.
ProductFunction product_function(const std::string& name);

}  // namespace aicf::cpu
