// Where a torch tensor lies, read through torch's own stable C interface: no torch is needed to build.
#pragma once
#include <dlfcn.h>

#include <cstdint>
#include <cstring>
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
// memory.
struct TensorPlace {
  void* handle = nullptr;
  void* data = nullptr;
  std::vector<int64_t> sizes_and_strides;

  TensorPlace() = default;
  explicit TensorPlace(void* taken) : handle(taken) { read(&data, &sizes_and_strides); }
  TensorPlace(TensorPlace&& other) noexcept
      : handle(std::exchange(other.handle, nullptr)),
        data(other.data),
        sizes_and_strides(std::move(other.sizes_and_strides)) {}
  TensorPlace& operator=(TensorPlace&& other) noexcept {
    std::swap(handle, other.handle);
    std::swap(data, other.data);
    std::swap(sizes_and_strides, other.sizes_and_strides);
    return *this;
  }
  ~TensorPlace() {
    if (handle) TensorReader::get().destroy(handle);
  }

  bool read(void** address, std::vector<int64_t>* layout) const {
    const TensorReader& torch = TensorReader::get();
    int64_t dim = 0, *sizes = nullptr, *strides = nullptr;
    if (torch.data_ptr(handle, address) || torch.dim(handle, &dim) || torch.sizes(handle, &sizes) ||
        torch.strides(handle, &strides))
      return false;
    layout->assign(sizes, sizes + dim);
    layout->insert(layout->end(), strides, strides + dim);
    return true;
  }
  bool same() const {
    const TensorReader& torch = TensorReader::get();
    void* address = nullptr;
    int64_t dim = 0, *sizes = nullptr, *strides = nullptr;
    if (torch.data_ptr(handle, &address) || address != data) return false;
    if (torch.dim(handle, &dim) || static_cast<size_t>(2 * dim) != sizes_and_strides.size()) return false;
    if (torch.sizes(handle, &sizes) || torch.strides(handle, &strides)) return false;
    const size_t bytes = static_cast<size_t>(dim) * sizeof(int64_t);
    return !bytes || (!std::memcmp(sizes, sizes_and_strides.data(), bytes) &&
                      !std::memcmp(strides, sizes_and_strides.data() + dim, bytes));
  }
};

}  // namespace aicf::bindings
