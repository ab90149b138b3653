// Which weights attention's dropout keeps, as the lanes of a warp find it, on the host. Built with the
// headers of tests/py/support/toolkit_on_host in the place of CUDA's.
#include "kernels/attention/dropout.cuh"

namespace {

template <bool KEYS_FIRST, int TILES>
__global__ void bits_kernel(const aicf::AttentionProblem p, int64_t head, int64_t row, int64_t column,
                            unsigned* bits) {
  const aicf::Draws draws(p, head / p.heads, head % p.heads);
  bits[threadIdx.x] = aicf::cuda::kept_bits<KEYS_FIRST, TILES>(draws, row, column);
}

template <bool KEYS_FIRST>
auto kernel_of(int tiles) {
  return tiles == 1   ? bits_kernel<KEYS_FIRST, 1>
         : tiles == 2 ? bits_kernel<KEYS_FIRST, 2>
         : tiles == 4 ? bits_kernel<KEYS_FIRST, 4>
                      : bits_kernel<KEYS_FIRST, 8>;
}

}  // namespace

// Sizes: heads, queries, keys. Of each of 32 lanes its bits.
extern "C" bool bits_on_host(bool keys_first, int tiles, const int64_t* sizes, const int64_t* random,
                             uint32_t site, uint32_t limit, int64_t head, int64_t row, int64_t column,
                             unsigned* bits) {
  aicf::AttentionProblem p{};
  p.heads = sizes[0], p.queries = sizes[1], p.keys = sizes[2];
  p.random = random, p.site = site, p.limit = limit;
  const cudaLaunchConfig_t config{1, 32};
  const auto kernel = keys_first ? kernel_of<true>(tiles) : kernel_of<false>(tiles);
  return cudaLaunchKernelEx(&config, kernel, p, head, row, column, bits) == cudaSuccess;
}
