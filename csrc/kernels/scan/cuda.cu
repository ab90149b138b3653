// scan on CUDA, by the type of its elements.
#include "kernels/scan/scan.cuh"

namespace aicf {

Status scan_cuda(const Scan& s, const LaunchContext& ctx) {
  using namespace cuda;
  if (s.outer * s.n * s.inner == 0) return Status::ok();
  switch (s.dtype) {
    case DType::F32:
      return scan_numbers<float>(s, ctx);
    case DType::F64:
      return scan_numbers<double>(s, ctx);
    case DType::F16:
      return scan_numbers<__half>(s, ctx);
    case DType::BF16:
      return scan_numbers<__nv_bfloat16>(s, ctx);
    case DType::I64:
      return scan_numbers<int64_t>(s, ctx);
    default:
      return scan_numbers<int32_t>(s, ctx);
  }
}

}  // namespace aicf
