// The prebuilt products of small results on the GPU in f32, on the host, thread by thread. Built with the
// headers of tests/py/support/toolkit_on_host in the place of CUDA's.
#include "kernels/gemm/tiled.cu"

namespace aicf {

Status cuda_status(cudaError_t, const char* call, const char*, int) { return Status::device(call); }

}  // namespace aicf

namespace {

// Sizes: batch, m, n, k. Matrices: a, b, saved, out, pre; of each `leading` and the step from member to
// member.
aicf::GemmProblem problem(const int64_t* sizes, bool trans_a, bool trans_b, void* const* data,
                          const int64_t* leading, const int64_t* steps) {
  aicf::GemmProblem p{};
  p.dtype = aicf::DType::F32;
  p.batch = sizes[0];
  p.inner_batch = 1;
  p.m = sizes[1], p.n = sizes[2], p.k = sizes[3];
  p.trans_a = trans_a, p.trans_b = trans_b;
  p.a = {data[0], leading[0], steps[0], 0};
  p.b = {data[1], leading[1], steps[1], 0};
  p.saved = {data[2], leading[2], steps[2], 0};
  p.out = {data[3], leading[3], steps[3], 0};
  p.pre = {data[4], leading[4], steps[4], 0};
  return p;
}

}  // namespace

extern "C" bool small_on_host(const int64_t* sizes, bool trans_a, bool trans_b, const int64_t* leading) {
  void* const none[5] = {};
  const int64_t steps[5] = {};
  return aicf::cuda::is_small(problem(sizes, trans_a, trans_b, none, leading, steps));
}

// Returns how many kernels ran, or -1. With `saved` it is the gradient of relu, else relu.
extern "C" int product_on_host(const int64_t* sizes, bool trans_a, bool trans_b, void* const* data,
                               const int64_t* leading, const int64_t* steps, const void* bias,
                               void* bias_grad, bool from_the_last_thread) {
  aicf::GemmProblem p = problem(sizes, trans_a, trans_b, data, leading, steps);
  p.bias = bias;
  p.bias_grad = bias_grad;
  (p.saved.data ? p.act_grad : p.act) = aicf::Act::Relu;
  backwards = aicf::gemm::at_once = from_the_last_thread;
  launches = 0;
  return aicf::gemm_tiled_16x16_cuda(p, aicf::LaunchContext{}).is_ok() ? launches : -1;
}
