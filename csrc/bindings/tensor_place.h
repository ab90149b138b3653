// Where a torch tensor lies, read through torch's own stable C interface: no torch is needed to build.
#pragma once
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

namespace aicf::bindings {

// Torch's stable C interface (torch/csrc/inductor/aoti_torch/c/shim.h), found in the library that is loaded
// already.
struct TensorReader {
  int32_t (*data_ptr)(void*, void**) = nullptr;
  int32_t (*dim)(void*, int64_t*) = nullptr;
  int32_t (*sizes)(void*, int64_t**) = nullptr;
  int32_t (*strides)(void*, int64_t**) = nullptr;
  int32_t (*destroy)(void*) = nullptr;

  static const TensorReader& get() {
    static const TensorReader reader = [] {
      TensorReader found;
      void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
      if (!library) return found;
      const auto symbol = [&](const char* name, auto* function) {
        *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
      };
      symbol("aoti_torch_get_data_ptr", &found.data_ptr);
      symbol("aoti_torch_get_dim", &found.dim);
      symbol("aoti_torch_get_sizes", &found.sizes);
      symbol("aoti_torch_get_strides", &found.strides);
      symbol("aoti_torch_delete_tensor_object", &found.destroy);
      return found;
    }();
    return reader;
  }
  bool complete() const { return data_ptr && dim && sizes && strides && destroy; }
};

// A torch tensor behind torch's own handle: it follows `.data =` and whatever else gives the tensor other
// memory. Small, for there are many; equal layouts are one object.
class TensorPlace {
 public:
  using Layout = std::vector<int64_t>;  // sizes, then strides

  explicit TensorPlace(void* handle) : handle_(handle) {
    std::memcpy(&impl_, handle, sizeof impl_);
    accept();
  }
  TensorPlace(TensorPlace&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)),
        impl_(other.impl_),
        data_(other.data_),
        layout_(other.layout_) {}
  TensorPlace& operator=(TensorPlace&&) = delete;
  ~TensorPlace() {
    if (handle_) TensorReader::get().destroy(handle_);
  }

  bool same() const {
    const TensorReader& torch = TensorReader::get();
    void* address = nullptr;
    int64_t dim = 0, *sizes = nullptr, *strides = nullptr;
    if (torch.data_ptr(handle_, &address) || address != data_) return false;
    if (torch.dim(handle_, &dim) || static_cast<size_t>(2 * dim) != layout_->size()) return false;
    if (torch.sizes(handle_, &sizes) || torch.strides(handle_, &strides)) return false;
    const size_t bytes = static_cast<size_t>(dim) * sizeof(int64_t);
    return !bytes || (!std::memcmp(sizes, layout_->data(), bytes) &&
                      !std::memcmp(strides, layout_->data() + dim, bytes));
  }
  // Expects the tensor to stay where it is now.
  void accept() {
    const TensorReader& torch = TensorReader::get();
    int64_t dim = 0, *sizes = nullptr, *strides = nullptr;
    Layout layout;
    if (!torch.data_ptr(handle_, &data_) && !torch.dim(handle_, &dim) && !torch.sizes(handle_, &sizes) &&
        !torch.strides(handle_, &strides)) {
      layout.assign(sizes, sizes + dim);
      layout.insert(layout.end(), strides, strides + dim);
    }
    static auto* layouts = new std::set<Layout>;  // outlives what refers to it
    layout_ = &*layouts->insert(std::move(layout)).first;
  }
  // After a step little of this is in the cache: it is asked for in time, what it points to later.
  void prefetch() const {
    __builtin_prefetch(handle_);
    for (int line = 0; line < 4; ++line) __builtin_prefetch(impl_ + 64 * line);
  }
  void prefetch_behind() const {
    const char* behind[2] = {};  // storage, autograd's part
    std::memcpy(&behind, impl_ + kPointers, sizeof behind);
    for (const char* object : behind)
      for (int line = 0; line < 2; ++line) __builtin_prefetch(object + 64 * line);
  }

 private:
  // Where torch keeps the pointers to the storage and to autograd's part of a tensor, behind a vtable and the
  // counts of references. Wrong for another torch, it would cost time and nothing else.
  static constexpr ptrdiff_t kPointers = 16;

  void* handle_;
  const char* impl_ = nullptr;  // what the handle points to, for prefetching only
  void* data_ = nullptr;
  const Layout* layout_ = nullptr;
};

}  // namespace aicf::bindings
