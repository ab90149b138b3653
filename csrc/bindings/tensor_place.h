// Where a torch tensor lies. Torch's own stable C interface says it; that it is still so is mostly seen from
// a few words of torch's objects. No torch is needed to build.
#pragma once
#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/torch_layout.h"

namespace aicf::bindings {

// Torch's stable C interface (torch/csrc/inductor/aoti_torch/c/shim.h), found in the library that is loaded
// already.
struct TensorReader {
  int32_t (*data_ptr)(void*, void**) = nullptr;
  int32_t (*dim)(void*, int64_t*) = nullptr;
  int32_t (*sizes)(void*, int64_t**) = nullptr;
  int32_t (*strides)(void*, int64_t**) = nullptr;
  int32_t (*storage_offset)(void*, int64_t*) = nullptr;
  int32_t (*dtype)(void*, int32_t*) = nullptr;
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
      symbol("aoti_torch_get_storage_offset", &found.storage_offset);
      symbol("aoti_torch_get_dtype", &found.dtype);
      symbol("aoti_torch_delete_tensor_object", &found.destroy);
      return found;
    }();
    return reader;
  }
  bool complete() const { return data_ptr && dim && sizes && strides && storage_offset && dtype && destroy; }
};

// A torch tensor behind torch's own handle: it follows `.data =` and whatever else gives the tensor other
// memory. Small, for there are many; equal forms are one object.
class TensorPlace {
 public:
  // `plain`: of no subclass, which may answer in another way than its TensorImpl.
  TensorPlace(void* handle, bool plain) : handle_(handle) {
    if (plain) impl_ = read_at<const char*>(handle, 0);
    accept();
  }
  TensorPlace(TensorPlace&& other) noexcept
      : impl_(other.impl_),
        storage_(other.storage_),
        memory_(other.memory_),
        form_(other.form_),
        data_(other.data_),
        handle_(std::exchange(other.handle_, nullptr)) {}
  TensorPlace& operator=(TensorPlace&&) = delete;
  ~TensorPlace() {
    if (handle_) TensorReader::get().destroy(handle_);
  }

  bool same() { return same_words() || same_for_torch(); }
  // Expects the tensor to stay where it is now.
  void accept() {
    Form form;
    data_ = nullptr;
    if (const Answer now(handle_); now.known) {
      data_ = now.data;
      form.asked = {now.dtype};
      form.asked.insert(form.asked.end(), now.sizes, now.sizes + now.dim);
      form.asked.insert(form.asked.end(), now.strides, now.strides + now.dim);
      read_words(now, &form.words);
    }
    static auto* forms = new std::set<Form>;  // outlives what refers to it
    form_ = &*forms->insert(std::move(form)).first;
  }
  // Whether words are compared, and torch is asked only where they differ.
  bool has_words() const { return storage_; }
  // After a step little of this is in the cache: what same_words() reads is asked for in time.
  [[gnu::always_inline]] void prefetch() const {  // or GCC leaves it out, as a function without effect
    if (!storage_) return;
    const TorchLayout& torch = TorchLayout::get();
    __builtin_prefetch(impl_ + torch.shape);
    __builtin_prefetch(impl_ + torch.shape + 64);
    __builtin_prefetch(impl_ + torch.shape + sizeof(uint64_t) * TorchLayout::kShape - 1);
    __builtin_prefetch(impl_ + torch.storage);
    __builtin_prefetch(storage_ + torch.data);
  }

 private:
  // Of the shape, with flags behind the dtype; what frees the memory.
  using Words = std::array<uint64_t, TorchLayout::kShape + 1>;
  using Lanes = uint64_t __attribute__((vector_size(32)));  // of words that are compared at once
  // All but where it is.
  struct Form {
    std::vector<int64_t> asked;  // of torch: dtype, sizes, strides
    Words words{};
    bool operator<(const Form& other) const {
      return asked != other.asked ? asked < other.asked : words < other.words;
    }
  };
  struct Answer {
    explicit Answer(void* handle) {
      const TensorReader& torch = TensorReader::get();
      known = !torch.data_ptr(handle, &data) && !torch.dtype(handle, &dtype) && !torch.dim(handle, &dim) &&
              !torch.sizes(handle, &sizes) && !torch.strides(handle, &strides);
    }
    bool known;
    void* data = nullptr;
    int32_t dtype = 0;
    int64_t dim = 0, *sizes = nullptr, *strides = nullptr;
  };

  // The StorageImpl is read only while the tensor has it, and so keeps it alive.
  bool same_words() const {
    if (!storage_) return false;
    const TorchLayout& torch = TorchLayout::get();
    const char* const now = impl_ + torch.shape;
    const uint64_t* const was = form_->words.data();
    Lanes difference{}, left, right;
    for (const int i : {0, 4, 8, TorchLayout::kShape - 4}) {
      std::memcpy(&left, now + 8 * i, sizeof left);
      std::memcpy(&right, was + i, sizeof right);
      difference |= left ^ right;
    }
    return !(difference[0] | difference[1] | difference[2] | difference[3]) &&
           read_at<const char*>(impl_, torch.storage) == storage_ &&
           read_at<void*>(storage_, torch.data) == memory_ &&
           read_at<uint64_t>(storage_, torch.data + 8) == form_->words.back();
  }
  // A tensor that is the same may have other words: another storage of the same memory. They are accepted.
  bool same_for_torch() {
    const Answer now(handle_);
    const std::vector<int64_t>& asked = form_->asked;
    const auto dim = static_cast<size_t>(now.dim);
    if (!now.known || now.data != data_ || asked.size() != 1 + 2 * dim || now.dtype != asked[0]) return false;
    const size_t bytes = dim * sizeof(int64_t);
    if (bytes &&
        (std::memcmp(now.sizes, &asked[1], bytes) || std::memcmp(now.strides, &asked[1 + dim], bytes)))
      return false;
    if (impl_) accept();
    return true;
  }
  // Leaves the tensor without words where they are not known to say what torch says.
  void read_words(const Answer& now, Words* words) {
    const TorchLayout& torch = TorchLayout::get();
    int64_t offset = 0;
    storage_ = nullptr;
    if (!impl_ || !torch.kind || read_at<uint64_t>(impl_, 0) != torch.kind || now.dim > TorchLayout::kDims ||
        TensorReader::get().storage_offset(handle_, &offset))
      return;
    Words found{};
    for (int i = 0; i < TorchLayout::kShape; ++i) found[static_cast<size_t>(i)] = torch.shape_word(impl_, i);
    const size_t bytes = static_cast<size_t>(now.dim) * sizeof(int64_t);
    if (static_cast<int64_t>(found[0]) != now.dim ||
        static_cast<int64_t>(found[TorchLayout::kOffset]) != offset ||
        (bytes && (std::memcmp(&found[TorchLayout::kSizes], now.sizes, bytes) ||
                   std::memcmp(&found[TorchLayout::kStrides], now.strides, bytes))))
      return;
    storage_ = read_at<const char*>(impl_, torch.storage);
    if (!storage_) return;
    memory_ = read_at<void*>(storage_, torch.data);
    found.back() = read_at<uint64_t>(storage_, torch.data + 8);
    *words = found;
  }

  const char* impl_ = nullptr;     // the TensorImpl; null: not plain
  const char* storage_ = nullptr;  // the StorageImpl; null: words are not compared
  void* memory_ = nullptr;         // of the storage
  const Form* form_ = nullptr;
  void* data_ = nullptr;  // what torch says
  void* handle_;
};

inline bool same_places(std::vector<TensorPlace>& places) {
  constexpr ptrdiff_t ahead = 16;
  TensorPlace* const end = places.data() + places.size();
  for (TensorPlace* place = places.data(); place != end; ++place) {
    if (end - place > ahead) place[ahead].prefetch();
    if (!place->same()) return false;
  }
  return true;
}

}  // namespace aicf::bindings
