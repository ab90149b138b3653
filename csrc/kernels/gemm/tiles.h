// Which tiles a product is computed by on CUDA, for the prebuilt kernels and for generated ones.
#pragma once
#include "op/status.h"
#include "op/tensor_desc.h"

namespace aicf {

// Compute capability: copies to shared memory in the background, and bf16 and TF32 on tensor cores.
constexpr int kSmAsyncCopies = 80;

// Whether square tiles of this side give every multiprocessor of a large chip one.
bool tiles_fill(int64_t side, int64_t m, int64_t n, int64_t batch);

// The side of the square tiles on tensor cores: the largest that still fill a chip.
int tensor_core_side(int64_t m, int64_t n, int64_t batch);

// In f32, 64x64 tiles of a smaller result are too few to fill the chip.
constexpr int64_t kSmallestLargeResult = 256 * 1024;
inline bool is_large_result(int64_t m, int64_t n) { return m * n >= kSmallestLargeResult; }

// How the code of device/ computes a product; by which names, and how it is launched.
struct ProductTile {
  const char* header;   // to include, relative to csrc
  const char* product;  // class of the header
  const char* format;   // its first two arguments: structs of instructions.cuh and of shapes.h
  const char* shape;
  int rows, columns;  // of the result, that a block computes
  int threads;
  int resident;    // blocks of a multiprocessor at once, at least: how many registers they may have
  int shared;      // bytes
  int neighbours;  // that an epilogue gets at most
};

// The tile that the first fitting row of the registry, but for those of cuBLASLt, would take; trans_a and
// trans_b are of the matrices in memory, allow_tf32 as in problem.h. Unsupported where there is none for
// dtype and compute capability.
Status product_tile(DType dtype, int sm, int64_t m, int64_t n, int64_t batch, bool trans_a, bool trans_b,
                    bool allow_tf32, ProductTile* out);

}  // namespace aicf
