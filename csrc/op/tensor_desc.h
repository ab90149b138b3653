// What a kernel may know of a tensor: where it is, what it holds, how it is laid out.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace aicf {

enum class DType : uint8_t { F32, F64, F16, BF16, I64, I32, I1 };
enum class DeviceType : uint8_t { Cpu, Cuda };

constexpr int kMaxRank = 8;
constexpr uint32_t kPlannedAlignment = 256;  // bytes; every planned slot starts at a multiple of it

size_t dtype_size(DType t);       // bytes
const char* dtype_name(DType t);  // "f32", "f64", "f16", "bf16", "i64", "i32", "i1"
bool parse_dtype(const std::string& text, DType* out);
inline bool is_float(DType t) { return t <= DType::BF16; }

struct TensorDesc {
  void* data = nullptr;  // null while planning
  DType dtype = DType::F32;
  DeviceType device = DeviceType::Cpu;
  int16_t device_index = 0;
  int32_t rank = 0;
  uint32_t alignment = kPlannedAlignment;  // bytes that divide the address (a power of two)
  int64_t shape[kMaxRank] = {};
  int64_t strides[kMaxRank] = {};  // elements

  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= shape[i];
    return n;
  }
  size_t bytes() const { return static_cast<size_t>(numel()) * dtype_size(dtype); }  // of the elements alone
  // From the first byte of the first element to the last byte of the last one: all that a kernel may touch.
  // `bytes()` of a contiguous tensor.
  size_t span_bytes() const;
  bool same_shape(const TensorDesc& o) const {
    if (rank != o.rank) return false;
    for (int i = 0; i < rank; ++i)
      if (shape[i] != o.shape[i]) return false;
    return true;
  }
  // Row-major without gaps. The stride of a dimension of size 1 means nothing, nor do those of no elements.
  bool contiguous() const;
  // Whether both walk memory alike: the same shape with the same strides, or both contiguous.
  bool same_layout(const TensorDesc& o) const;
  // The dimensions of more than one element, smallest stride first.
  std::vector<int> by_stride() const;
  std::string str() const;          // "f32[64, 256]"
  std::string strides_str() const;  // "[256, 1]"
  template <class T>
  T* ptr() const {
    return static_cast<T*>(data);
  }
};

}  // namespace aicf
