// Two kernels that are wrong on purpose. A sanitizer that finds nothing here proves nothing elsewhere.
//   canary memory   writes one element past the end of its allocation
//   canary race     reads what another thread of the block writes, without a barrier between
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

__global__ void write_past_the_end(int* out, int count) { out[threadIdx.x % (count + 1)] = 1; }

__global__ void read_without_a_barrier(int* out) {
  __shared__ int shared[64];
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = shared[63 - threadIdx.x];
}

int main(int argc, char** argv) {
  constexpr int kCount = 64;
  int* out = nullptr;
  if (argc != 2 || cudaMalloc(&out, kCount * sizeof(int)) != cudaSuccess) {
    std::fprintf(stderr, "usage: canary memory|race, on a machine with a GPU\n");
    return 2;
  }
  if (std::strcmp(argv[1], "memory") == 0) {
    write_past_the_end<<<1, kCount + 1>>>(out, kCount);
  } else {
    read_without_a_barrier<<<1, kCount>>>(out);
  }
  return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
}
