#include "kernels/gemm/cpu_product.h"

#include "kernels/gemm/cpu_products.h"

namespace aicf::cpu {
namespace {

template <class T>
constexpr DType kDType = std::is_same_v<T, float>      ? DType::F32
                         : std::is_same_v<T, double>   ? DType::F64
                         : std::is_same_v<T, BFloat16> ? DType::BF16
                                                       : DType::F16;

template <class T>
void product(const int64_t* sizes, const void* a, const void* b, void* z, EpilogueFunction epilogue,
             void* const* addresses) {
  GemmProblem p{};
  p.batch = sizes[0], p.inner_batch = sizes[1];
  p.m = sizes[2], p.n = sizes[3], p.k = sizes[4];
  p.trans_a = sizes[5] != 0, p.trans_b = sizes[6] != 0;
  p.a = {a, sizes[7], sizes[8], sizes[9]};
  p.b = {b, sizes[10], sizes[11], sizes[12]};
  const Matrices<void*> to{z, sizes[13], sizes[14], sizes[15]};
  const auto finish = [&](int64_t batch, const Product&, const Block<T>& block) {
    epilogue(addresses, batch, block.row, block.row + block.rows, block.column, block.column + block.columns);
  };
  const auto beside = [&](const Product&) {
    Beside read;
    for (const int64_t* row = sizes + 17; row < sizes + 17 + 3 * sizes[16]; row += 3)
      read.add(addresses[row[0]], row[1], row[2]);
    return read;
  };
  p.dtype = kDType<T>;
  if (!multiply<T>(p, to, packs(p) || packs_widened(p), beside, finish).is_ok())
    multiply_in_blocks<T>(p, to, finish);
}

}  // namespace

ProductFunction product_function(const std::string& name) {
  if (name == "product_f32") return product<float>;
  if (name == "product_f64") return product<double>;
  if (name == "product_f16") return product<Half>;
  if (name == "product_bf16") return product<BFloat16>;
  return nullptr;
}

}  // namespace aicf::cpu
