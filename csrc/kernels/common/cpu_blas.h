// The CPU's matrix product: cblas from a shared library that is loaded by its path (the scipy-openblas32
// wheel; no link-time dependency).
#pragma once
#include <cstdint>
#include <string>

#include "op/status.h"

namespace aicf {

// Loads the library once per process; a second call with any path replaces nothing and succeeds. Code::Device
// if it cannot be loaded or lacks a symbol, with the loader's own words.
Status load_blas(const std::string& path);
bool blas_loaded();

// The reason for a refusal where it is not loaded.
Status needs_blas();

// One row-major product, by the calling thread alone; several may run at once: C[m, n] = op(A) op(B), C never
// read, or with `add` C += op(A) op(B). Leading dimensions in elements; m, n, k >= 1 and all fit 31 bits.
// Call only after load_blas has succeeded.
struct BlasProduct {
  int64_t m, n, k;
  bool trans_a, trans_b;
  int64_t lda, ldb, ldc;
  bool add = false;
};
void blas_gemm(const BlasProduct& p, const float* a, const float* b, float* c);
void blas_gemm(const BlasProduct& p, const double* a, const double* b, double* c);

}  // namespace aicf
