// Which tiles a product is computed by on CUDA, for the prebuilt kernels and for generated ones.
#pragma once
#include "op/status.h"
#include "op/tensor_desc.h"

namespace aicf {

// Compute capability: copies to shared memory in the background, and bf16 and TF32 on tensor cores.
constexpr int kSmAsyncCopies = 80;

// Of the result, that a block computes.
struct TileSize {
  int rows, columns;
};

// Whether there are such tiles for nearly every multiprocessor of a large chip.
bool tiles_fill(TileSize tile, int64_t m, int64_t n, int64_t batch);

// Those of tensor cores, the largest first.
constexpr TileSize kTensorCoreTiles[] = {{128, 256}, {128, 128}, {128, 64}, {64, 64}, {32, 32}, {16, 16}};

// The largest of them that still fill a chip; of those above 64, none that is twice what the result needs.
TileSize tensor_core_tile(int64_t m, int64_t n, int64_t batch);

// How a launch divides a product on tensor cores: tiles of the result, and k into `split_k` parts, each of
// `depth` steps but the last (split-k). The sums of the parts are added from the first to the last.
struct Division {
  TileSize tile;
  int64_t split_k, depth;
};
// Of long products with small results, those that tiles alone do not fill a chip with, k is divided too.
Division tensor_core_division(int64_t m, int64_t n, int64_t k, int64_t batch);
// With that many parts, or less where the last ones would have nothing.
Division divided(TileSize tile, int64_t k, int64_t parts);

// Those of f32 in registers, the largest first.
constexpr TileSize kRegisterTiles[] = {{128, 64}, {64, 64}, {64, 32}, {32, 32}, {16, 16}};

// How many a result of m x n takes.
int64_t tiles_of(TileSize tile, int64_t m, int64_t n);

// The one of them that takes the least time, for sums of k terms where that is not 0.
TileSize register_tile(int64_t m, int64_t n, int64_t batch, int64_t k = 0);

// Whether sums of f32 are so short, and the result so large, that writing it takes the time: of 16 terms a
// multiprocessor multiplies twice as fast as it writes. Tiles of device/short_sums.cuh fill a chip then.
bool has_short_sums(int64_t m, int64_t n, int64_t k, int64_t batch);

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

// All that there are for a dtype, a compute capability and sums of k terms: a result of any m and n by any of
// them, but for what is for n = 1 alone. Where k is 0 those for any k. Empty where there is none.
std::vector<ProductTile> product_tiles(DType dtype, int sm, int64_t n, int64_t k, bool trans_a, bool trans_b,
                                       bool allow_tf32);

// The tile that the first fitting row of the registry, but for those of cuBLASLt, would take; where k is not
// 0, that of a kernel for sums of k terms alone, of which there are more kinds for small results. trans_a and
// trans_b are of the matrices in memory, allow_tf32 as in problem.h. Unsupported where there is none for
// dtype and compute capability.
Status product_tile(DType dtype, int sm, int64_t m, int64_t n, int64_t k, int64_t batch, bool trans_a,
                    bool trans_b, bool allow_tf32, ProductTile* out);

}  // namespace aicf
