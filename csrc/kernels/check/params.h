// What the checks share on both devices: the bounds of an index, the bits of a number that is not finite, and
// how the tensors of check_finite are divided on CUDA.
#pragma once
#include <cstdint>

#include "kernels/common/strided_shape.h"
#include "kernels/eltwise/ops.h"  // AICF_HD
#include "op/variant.h"

namespace aicf {

constexpr Attr<int64_t> kCode{"code", std::nullopt};
const Attr<std::vector<int64_t>> kClasses{"classes", std::nullopt}, kIgnored{"ignore_index", std::nullopt};

struct IndexBounds {
  int64_t classes, ignore_index;
  bool has_ignored;

  // Of target `i`.
  IndexBounds(const OpDesc& op, size_t i)
      : classes(op.attrs.get(kClasses)[i]), ignore_index(0), has_ignored(op.attrs.has(kIgnored)) {
    if (has_ignored) ignore_index = op.attrs.get(kIgnored)[i];
  }
  AICF_HD bool refuses(int64_t index) const {
    return (index < 0 || index >= classes) && !(has_ignored && index == ignore_index);
  }
};

// A target as rows of `inner` elements.
struct Rows {
  int64_t count = 0, inner = 1, row_step = 0, step = 1;  // elements, of which `inner` a row; steps in memory

  AICF_HD int64_t place(int64_t i) const {
    return i < inner ? i * step : i / inner * row_step + i % inner * step;
  }
};

// False where it has more dimensions that do not walk as one.
inline bool rows_of(const TensorDesc& x, Rows* rows) {
  StridedShape<1> walk;
  for (int d = 0; d < x.rank; ++d) walk.append(x.shape[d], {x.strides[d]});
  *rows = Rows{x.numel()};
  if (walk.rank > 2) return false;
  if (walk.rank > 0) {
    rows->inner = walk.shape[walk.rank - 1];
    rows->step = walk.strides[0][walk.rank - 1];
  }
  if (walk.rank == 2) rows->row_step = walk.strides[0][0];
  return true;
}

// A number is NaN or infinite where all bits of its exponent are set; infinite where those of its mantissa
// are not.
struct FloatBits {
  uint64_t exponent, mantissa;
  int bytes;

  explicit FloatBits(DType dtype) {
    switch (dtype) {
      case DType::F64:
        *this = FloatBits{0x7ff0000000000000u, 0x000fffffffffffffu, 8};
        return;
      case DType::F16:
        *this = FloatBits{0x7c00u, 0x03ffu, 2};
        return;
      case DType::BF16:
        *this = FloatBits{0x7f80u, 0x007fu, 2};
        return;
      default:
        *this = FloatBits{0x7f800000u, 0x007fffffu, 4};
    }
  }
  AICF_HD bool not_finite(uint64_t bits) const { return (bits & exponent) == exponent; }
  // 0 for NaN, 1 and -1 for the infinities: the third number of a status.
  AICF_HD int64_t kind(uint64_t bits) const {
    if (bits & mantissa) return 0;
    return bits >> (8 * bytes - 1) & 1 ? -1 : 1;
  }
  AICF_HD uint64_t at(const void* data, int64_t i) const {
    if (bytes == 8) return static_cast<const uint64_t*>(data)[i];
    if (bytes == 4) return static_cast<const uint32_t*>(data)[i];
    return static_cast<const uint16_t*>(data)[i];
  }

 private:
  FloatBits(uint64_t exponent, uint64_t mantissa, int bytes)
      : exponent(exponent), mantissa(mantissa), bytes(bytes) {}
};

constexpr int kCheckThreads = 256;
constexpr int64_t kCheckedPerBlock = kCheckThreads * 64;  // bytes: four vectors of 16 a thread

inline int64_t check_blocks(const TensorDesc& x) {
  return (static_cast<int64_t>(x.bytes()) + kCheckedPerBlock - 1) / kCheckedPerBlock;
}

// Each block leaves the first place it found.
struct FoundPlace {
  int64_t tensor, position, kind;  // tensor -1: none
};

inline size_t check_finite_cuda_workspace(const OpDesc& op) {
  int64_t blocks = 0;
  for (const TensorDesc& x : op.ins("x")) blocks += check_blocks(x);
  return static_cast<size_t>(blocks) * sizeof(FoundPlace);
}

constexpr int kIndexThreads = 1024;

// Elements that one block checks, of booleans 16 at a time: all where one block does not take long, else so
// many that the blocks fill a chip.
inline int64_t indices_per_block(const TensorDesc& target) {
  const int64_t each = kIndexThreads * (target.dtype == DType::I1 ? 8 : 1);
  constexpr int64_t kOneBlock = 32, kManyBlocks = 4;
  return target.numel() <= kOneBlock * each ? kOneBlock * each : kManyBlocks * each;
}

inline int64_t index_blocks(const TensorDesc& target) {
  const int64_t each = indices_per_block(target);
  return (target.numel() + each - 1) / each;
}

inline int64_t index_blocks(const OpDesc& op) {
  int64_t blocks = 0;
  for (const TensorDesc& target : op.ins("target")) blocks += index_blocks(target);
  return blocks;
}

// One block writes the status itself.
inline size_t check_index_cuda_workspace(const OpDesc& op) {
  const int64_t blocks = index_blocks(op);
  return blocks > 1 ? static_cast<size_t>(blocks) * sizeof(FoundPlace) : 0;
}

}  // namespace aicf
