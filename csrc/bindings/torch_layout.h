// Where torch keeps, inside its own objects, what is compared before each step: offsets in bytes, found and
// tested by aicf_mlir/runtime/torch_layout.py. What is not known is asked of torch, slower.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace aicf::bindings {

template <typename T>
T read_at(const void* object, ptrdiff_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(object) + offset, sizeof value);
  return value;
}

struct TorchLayout {
  uint64_t kind = 0;  // the first word of an ordinary TensorImpl; 0: where a tensor lies is asked of torch
  ptrdiff_t storage = 0;  // in a TensorImpl: the pointer to its StorageImpl
  // In a TensorImpl, a word each: dimensions, five sizes, five strides, storage offset, elements; the dtype
  // in two bytes, and flags. Sizes and strides of more dimensions lie elsewhere.
  ptrdiff_t shape = 0;
  ptrdiff_t data = 0;  // in a StorageImpl: the memory, then what frees it; copy-on-write has its own

  ptrdiff_t impl = 0;           // in a Python tensor: the pointer to its TensorImpl
  ptrdiff_t autograd = 0;       // in a TensorImpl: the pointer to autograd's part, null at first
  ptrdiff_t requires_grad = 0;  // in autograd's part: a byte; 0: it is asked of torch

  static constexpr int kDims = 5, kSizes = 1, kStrides = 6, kOffset = 11, kDType = 13, kShape = 14;

  static TorchLayout& get() {
    static TorchLayout layout;
    return layout;
  }
  uint64_t shape_word(const char* tensor, int i) const {
    return read_at<uint64_t>(tensor, shape + i * static_cast<ptrdiff_t>(sizeof(uint64_t)));
  }
  // Autograd's part of a Python tensor; null where it has none, or where that is not known.
  const char* autograd_of(const void* object) const {
    return requires_grad ? read_at<const char*>(read_at<const char*>(object, impl), autograd) : nullptr;
  }
  // Whether a Python tensor, of no subclass, certainly requires a gradient: without the byte, one that an
  // operation has made may too.
  bool surely_requires_grad(const void* object) const {
    const char* part = autograd_of(object);
    return part && read_at<uint8_t>(part, requires_grad) == 1;
  }
};

}  // namespace aicf::bindings
