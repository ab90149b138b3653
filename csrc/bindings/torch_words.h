// Words of torch's state of the process and of the calling thread, read in a few nanoseconds: a call of
// torch's own functions from Python takes ten times as long. Each is looked for in the libraries that are
// loaded already, and tested when the runtime is imported (aicf_mlir/runtime/torch_words.py).
#pragma once
#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace aicf::bindings {

class TorchWords {
 public:
  enum Word : size_t {
    FunctionModes,      // how many modes see torch's functions in this thread
    DispatchIncluded,   // which kinds of dispatch are switched on or off in this thread: modes of dispatch,
    DispatchExcluded,   // transforms of torch.func
    SavedTensorsHooks,  // bytes between the ends of the stack of hooks on saved tensors
    Anomaly,            // whether torch looks for the operation that made a NaN
    DefaultDtype,       // by torch's number
    kCount
  };

  static const TorchWords& get() {
    static const TorchWords words;
    return words;
  }

  // Whether a word can be read at all.
  bool has(size_t word) const {
    switch (word) {
      case FunctionModes:
        return count_function_modes_;
      case DispatchIncluded:
      case DispatchExcluded:
        return thread_keys();
      case SavedTensorsHooks:
        return saved_tensors_state_;
      case Anomaly:
        return anomaly_;
      case DefaultDtype:
        return default_dtype_;
      default:
        return false;
    }
  }

  // A word that there is.
  uint64_t read(size_t word) const {
    switch (word) {
      case FunctionModes:
        return static_cast<uint64_t>(count_function_modes_());
      case DispatchIncluded:
        return thread_keys()[0];
      case DispatchExcluded:
        return thread_keys()[1];
      case SavedTensorsHooks: {
        // a std::deque: begin and end of what it holds
        const char* state = saved_tensors_state_();
        return word_at(state, 48) - word_at(state, 16);
      }
      case Anomaly:
        return *anomaly_;
      default:
        return default_dtype_();
    }
  }

 private:
  TorchWords() {
    find("libtorch_cpu.so", "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", &count_function_modes_);
    find("libtorch_cpu.so", "_ZN2at23SavedTensorDefaultHooks13get_tls_stateEv", &saved_tensors_state_);
    find("libtorch_cpu.so", "_ZN5torch8autograd11AnomalyMode8_enabledE", &anomaly_);
    find("libc10.so", "_ZN3c1017get_default_dtypeEv", &default_dtype_);
  }

  template <class Pointer>
  static void find(const char* library, const char* name, Pointer* place) {
    if (void* loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD))
      *place = reinterpret_cast<Pointer>(dlsym(loaded, name));
  }

  static uint64_t word_at(const char* place, size_t offset) {
    uint64_t word;
    std::memcpy(&word, place + offset, sizeof word);
    return word;
  }

  // Of the calling thread; looked up once in each.
  static const uint64_t* thread_keys() {
    thread_local const uint64_t* keys = nullptr;
    if (!keys) find("libc10.so", "_ZN3c104impl26raw_local_dispatch_key_setE", &keys);
    return keys;
  }

  int64_t (*count_function_modes_)() = nullptr;
  const char* (*saved_tensors_state_)() = nullptr;
  const volatile uint8_t* anomaly_ = nullptr;
  uint16_t (*default_dtype_)() = nullptr;
};

}  // namespace aicf::bindings
