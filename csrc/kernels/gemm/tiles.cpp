#include "kernels/gemm/tiles.h"

#include "kernels/gemm/device/shapes.h"

namespace aicf {
namespace {

template <class Shape>
ProductTile tile(const char* header, const char* product, const char* format, const char* shape,
                 int neighbours, bool trans_a, bool trans_b) {
  using gemm::SharedMemory;
  const int shared =
      trans_a
          ? (trans_b ? SharedMemory<Shape, true, true>::kBytes : SharedMemory<Shape, true, false>::kBytes)
          : (trans_b ? SharedMemory<Shape, false, true>::kBytes : SharedMemory<Shape, false, false>::kBytes);
  return {header,    product,         format,           shape,  Shape::BM,
          Shape::BN, Shape::kThreads, Shape::kResident, shared, neighbours};
}

#define TILE(header, product, format, shape, neighbours) \
  tile<gemm::shape>("kernels/gemm/device/" header, product, format, #shape, neighbours, trans_a, trans_b)

}  // namespace

bool tiles_fill(int64_t side, int64_t m, int64_t n, int64_t batch) {
  constexpr int64_t kMultiprocessors = 132;
  return (m + side - 1) / side * ((n + side - 1) / side) * batch >= kMultiprocessors;
}

int tensor_core_side(int64_t m, int64_t n, int64_t batch) {
  for (const int side : {128, 64, 32})
    if (tiles_fill(side, m, n, batch)) return side;
  return 16;
}

Status product_tile(DType dtype, int sm, int64_t m, int64_t n, int64_t batch, bool trans_a, bool trans_b,
                    bool allow_tf32, ProductTile* out) {
  const auto decide = [&](const ProductTile& found) {
    *out = found;
    return Status::ok();
  };
  const bool half = dtype == DType::F16 || dtype == DType::BF16;
  if (half && sm >= kSmAsyncCopies) {
    const char* format = dtype == DType::F16 ? "F16" : "BF16";
    switch (tensor_core_side(m, n, batch)) {
      case 128:
        return decide(TILE("tensor_cores.cuh", "TensorCoreProduct", format, Tensor128, 8));
      case 64:
        return decide(TILE("tensor_cores.cuh", "TensorCoreProduct", format, Tensor64, 8));
      case 32:
        return decide(TILE("tensor_cores.cuh", "TensorCoreProduct", format, Tensor32, 8));
      default:
        return decide(TILE("tensor_cores.cuh", "TensorCoreProduct", format, Tensor16, 8));
    }
  }
  if (dtype == DType::F32 && sm >= kSmAsyncCopies && allow_tf32) {
    switch (tensor_core_side(m, n, batch)) {
      case 128:
        return decide(TILE("tensor_cores.cuh", "TensorCoreProduct", "TF32", TF32Tensor128, 4));
      case 64:
        return decide(TILE("tensor_cores.cuh", "TensorCoreProduct", "TF32", TF32Tensor64, 4));
      case 32:
        return decide(TILE("tensor_cores.cuh", "TensorCoreProduct", "TF32", TF32Tensor32, 4));
      default:
        return decide(TILE("tensor_cores.cuh", "TensorCoreProduct", "TF32", TF32Tensor16, 4));
    }
  }
  if (dtype == DType::F32 && sm >= kSmAsyncCopies) {
    if (is_large_result(m, n)) return decide(TILE("registers.cuh", "RegisterProduct", "F32", Register64, 4));
    if (tiles_fill(32, m, n, batch))
      return decide(TILE("registers.cuh", "RegisterProduct", "F32", Register32, 4));
    return decide(TILE("registers.cuh", "RegisterProduct", "F32", Register16, 4));
  }
  if (dtype == DType::F32) return decide(TILE("elements.cuh", "ElementProduct", "F32", Element16, 1));
  if (dtype == DType::F64) return decide(TILE("elements.cuh", "ElementProduct", "F64", Element16, 1));
  return Status::unsupported(std::string("there is no CUDA product of ") + dtype_name(dtype) + " for sm_" +
                             std::to_string(sm));
}

}  // namespace aicf
