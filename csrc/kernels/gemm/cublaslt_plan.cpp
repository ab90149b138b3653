#include <algorithm>
#include <climits>

#include "kernels/common/schema_checks.h"
#include "kernels/gemm/cublaslt_gemm.h"
#include "kernels/gemm/tiles.h"

namespace aicf {
namespace {

constexpr int64_t kMostCalls = 16;  // of one launch, for a batch of two levels
constexpr size_t kAlignment = 256, kLargestWorkspace = size_t{32} << 20;

// Whether tiles of f32 that do not divide k fill a chip with the result, or half of it where sums are long,
// as those of the parts of a longer one. On an H100 50 x 40 x 64 x 2000 takes 40 us and 32 x 128 x 128 x 2048
// 47, where the library takes 108 for 32 x 40 x 64 x 3125 and 63; on an H200 it takes 72 and 83 for 50 x 64 x
// 64 x 2000. Of other narrow ones nothing was measured.
bool is_wide(const GemmProblem& p) {
  constexpr int64_t kNarrow = 256, kHalf = 64;
  constexpr TileSize kTile{64, 32};
  if (p.batch > 1 && p.k >= 8 * std::max(p.m, p.n)) return tiles_of(kTile, p.m, p.n) * p.batch >= kHalf;
  return p.m >= kNarrow && p.n >= kNarrow && tiles_fill(kTile, p.m, p.n, p.batch);
}

// Whether rows start at multiples of 16 bytes in memory that does.
bool rows_are_wide(const GemmProblem& p) {
  const auto kWide = static_cast<int64_t>(16 / dtype_size(p.dtype));
  for (const int64_t step : {p.a.leading, p.a.outer, p.a.inner, p.b.leading, p.b.outer, p.b.inner,
                             p.out.leading, p.out.outer, p.out.inner})
    if (step % kWide != 0) return false;
  return true;
}

// batch * m * n * k of the smallest product that the library runs faster than we do, on an H200. Tensor
// cores: 512 x 512 x 256 in bf16 takes 2.8 us, ours 4.2, and 256 x 256 x 256 2.6 and 2.8. f32, with a and b
// as they lie forward, for the gradient of x and for that of w: 1024 x 1024 x 1024 takes 57, 54 and 51, ours
// 48, 47 and 46; 1536 x 1536 x 1536 173, 186 and 191, ours 182, 177 and 169; 4096 x 1024 x 1024 180, 175 and
// 169, ours 188, 184 and 178; where rows are no multiple of 16 bytes ours takes twice the library's time of
// 65536 x 256 x 63, 176 us, and 1.6 to 1.8 of 16384 x 256 x 319 and of 96 products of 197 x 197 x 64. Of
// short sums a tile of ours spends most of its time before and after them: 8 products of 1024 x 1024 x 64
// take 48, the library 35, and 256 of 256 x 256 x 64 take 122 and 83; ours would be ahead from some 200 terms
// on. Ours in f64 has one thread for each element.
double least_work(const GemmProblem& p, bool tf32) {
  if (p.dtype == DType::F64) return 1 << 18;
  if (p.dtype != DType::F32 || tf32) return 1 << 25;
  if (!rows_are_wide(p)) return 1 << 27;
  constexpr int64_t kShortSum = 256;
  return is_wide(p) && p.k >= kShortSum ? int64_t{1} << 32 : 3 << 27;
}

// The same of one call of several, in 16 bits, on an H200. Our own of odd rows takes half a microsecond for a
// million products of elements: 155 for 256 x 12 products of 49 x 49 x 32, where the library takes 134 for
// three calls of 315 million. Of other rows ours is slow for short sums: 77 for 16 x 8 products of 512 x 512
// x 64, 824 for 32 x 12 of 1024 x 1024 x 64 and 1243 for 4 x 32 of 2048 x 2048 x 128, where the library takes
// 48, 317 and 352; and 18 for 8 x 16 of 256 x 256 x 64, where it takes 22. Of long sums it is 38 and 42 for
// 16 x 8 of 512 x 64 x 512, 272 and 265 for 32 x 12 of 1024 x 64 x 1024, 576 and 314 for 4 x 32 of 2048 x 128
// x 2048.
double least_of_calls(const GemmProblem& p) {
  constexpr int64_t kShortSum = 128;
  if (!rows_are_wide(p)) return 1 << 24;
  return p.k <= kShortSum ? int64_t{1} << 28 : int64_t{1} << 31;
}

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Whether the library has to divide k to fill a chip with the results of one call, `batch` of them.
bool needs_division(const GemmProblem& p, int64_t batch, bool tf32) {
  return p.dtype == DType::F32 && !tf32 && !tiles_fill({64, 64}, p.m, p.n, batch);
}

bool has_epilogue(const OpDesc& op) { return op.schema->inputs.size() > 2; }

}  // namespace

LibraryCalls::LibraryCalls(const GemmProblem& p) : count(1), batch(p.batch), is_outer(p.inner_batch != 1) {
  if (p.inner_batch == 1 || p.inner_batch == p.batch) return;
  const int64_t outer = p.batch / p.inner_batch;
  is_outer = outer < p.inner_batch;
  count = is_outer ? outer : p.inner_batch;
  batch = p.batch / count;
}

Status supports_cublaslt(const OpDesc& op) {
  GemmProblem p{};
  AICF_TRY(read_gemm_problem(op, &p));
  if (p.batch == 0 || p.m == 0 || p.n == 0 || p.k == 0) return decline("needs elements to multiply");
  if (p.batch > INT_MAX || p.m > INT_MAX || p.n > INT_MAX || p.k > INT_MAX)
    return decline("needs dimensions below 2^31, got m = ", p.m, ", n = ", p.n, ", k = ", p.k,
                   ", batch = ", p.batch);
  if (LibraryCalls(p).count > kMostCalls)
    return decline("needs a level of a batch with at most ", kMostCalls, " members, got ",
                   p.batch / p.inner_batch, " x ", p.inner_batch);
  if (has_epilogue(op)) {
    // The library's sum was seen to differ from run to run for a single column, and has no algorithm for
    // many sizes.
    if (op.has_out("bias_grad")) return decline("has no bias_grad: it is a launch of its own");
    if (op.has_out("pre") || p.act_grad != Act::None || (p.act != Act::None && p.act != Act::Relu))
      return decline("has no epilogue but a bias and relu: the rest is a launch of its own");
    // Two cases were seen to be off by a rounding of the product.
    if (op.has_in("bias") && dtype_size(p.dtype) == 2 && !rows_are_wide(p))
      return decline("needs rows of a multiple of 16 bytes where it adds a bias in ", dtype_name(p.dtype));
  }
  return needs_element_alignment(op);
}

Status prefers_cublaslt(const OpDesc& op) {
  const GemmProblem p = gemm_problem(op);
  const LibraryCalls calls(p);
  const bool tf32 = p.dtype == DType::F32 && op.attrs.get(kAllowTF32);
  // Of these two nothing was measured.
  if (calls.count > 1 && (tf32 || p.dtype == DType::F64))
    return decline("is not taken for two levels of a batch in ", tf32 ? "tf32" : dtype_name(p.dtype));
  const bool half = dtype_size(p.dtype) == 2;
  if (calls.count > 1 && rows_are_wide(p) && !half)
    return decline(
        "is taken for two levels of a batch where rows are no multiple of 16 bytes, or in 16 bits");
  const double work = static_cast<double>(calls.batch) * static_cast<double>(p.m) * static_cast<double>(p.n) *
                      static_cast<double>(p.k);
  const double least = calls.count > 1 && half ? least_of_calls(p) : least_work(p, tf32);
  if (work < least)
    return decline("is taken for ", static_cast<int64_t>(least), " products of elements or more",
                   calls.count > 1 ? " in each call, got " : ", got ", static_cast<int64_t>(work));
  if (p.dtype == DType::F32 && !tf32 && has_short_sums(p.m, p.n, p.k, p.batch))
    return decline("is not taken for sums of so few terms");
  if (dtype_size(p.dtype) == 2 && !rows_are_wide(p) && p.batch == 1)
    return decline("is taken for rows of a multiple of 16 bytes in ", dtype_name(p.dtype));
  // 512 x 415 of 2048 terms: 8 blocks of 256 x 128, 332 us on an H100.
  if (needs_division(p, calls.batch, tf32) && !rows_are_wide(p))
    return decline("does not divide k where rows are no multiple of 16 bytes");
  return Status::ok();
}

// For partial sums of parts of k, where the result alone does not fill the chip; a rule of the sizes, for
// plans are made where there is no library to ask.
size_t cublaslt_workspace(const OpDesc& op) {
  const GemmProblem p = gemm_problem(op);
  constexpr int64_t kShortestPart = 64;
  const double parts = static_cast<double>((p.k + kShortestPart - 1) / kShortestPart);
  const double sums = parts * static_cast<double>(LibraryCalls(p).batch) * static_cast<double>(p.m) *
                      static_cast<double>(p.n) * sizeof(float);
  return aligned(static_cast<size_t>(std::min(sums, static_cast<double>(kLargestWorkspace))));
}

}  // namespace aicf
