// Words of torch's state of the process and of the calling thread, read in a few nanoseconds: a call of
// torch's own functions from Python takes ten times as long. Each is looked for in the libraries that are
// loaded already, and tested when the runtime is imported (aicf_mlir/runtime/torch_words.py).
#pragma once
#include <dlfcn.h>

#include <array>
#include <cstdint>

namespace aicf::bindings {

class TorchWords {
 public:
  enum Word : size_t {
    FunctionModes,      // bytes of the stack of modes that see torch's functions in this thread
    DispatchIncluded,   // which kinds of dispatch are switched on or off in this thread: modes of dispatch,
    DispatchExcluded,   // transforms of torch.func
    SavedTensorsHooks,  // the same of hooks on saved tensors
    Anomaly,            // whether torch looks for the operation that made a NaN
    DefaultDtype,       // by torch's number
    kCount
  };

  using Values = std::array<uint64_t, kCount>;
  struct Selection {
    Values mask{}, was{};  // all ones for a word that is compared
  };

  static const TorchWords& get() {
    static const TorchWords words;
    return words;
  }

  // Whether a word can be read at all.
  bool has(size_t word) const {
    switch (word) {
      case FunctionModes:
        return modes_;
      case DispatchIncluded:
      case DispatchExcluded:
        return places().keys != kNothing;
      case SavedTensorsHooks:
        return hooks_;
      case Anomaly:
        return anomaly_;
      case DefaultDtype:
        return default_dtype_;
      default:
        return false;
    }
  }

  // All words, of this thread; nothing of use for one that there is not.
  Values read() const {
    const Places& here = places();
    return {here.modes[2] - here.modes[1],  // behind two flags a std::vector: where it begins, where it ends
            here.keys[0],
            here.keys[1],
            here.hooks[6] - here.hooks[2],  // a std::deque: where it ends, where it begins
            anomaly_ ? *anomaly_ : uint64_t{0},
            default_dtype_ ? default_dtype_() : uint64_t{0}};
  }

  bool same(const Selection& selection) const {
    const Values now = read();
    uint64_t difference = 0;
    for (size_t i = 0; i < kCount; ++i) difference |= (now[i] ^ selection.was[i]) & selection.mask[i];
    return !difference;
  }

 private:
  // What torch has for each thread, looked up once in each.
  struct Places {
    const uint64_t *modes, *keys, *hooks;
  };
  static constexpr uint64_t kNothing[8] = {};

  TorchWords() {
    find("libtorch_cpu.so", "_ZN2at4impl22PythonTorchFunctionTLS9get_stateEv", &modes_);
    find("libtorch_cpu.so", "_ZN2at23SavedTensorDefaultHooks13get_tls_stateEv", &hooks_);
    find("libtorch_cpu.so", "_ZN5torch8autograd11AnomalyMode8_enabledE", &anomaly_);
    find("libc10.so", "_ZN3c1017get_default_dtypeEv", &default_dtype_);
  }

  template <class Pointer>
  static void find(const char* library, const char* name, Pointer* place) {
    if (void* loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD))
      *place = reinterpret_cast<Pointer>(dlsym(loaded, name));
  }

  const Places& places() const {
    thread_local Places here{};
    if (!here.keys) {
      here = {modes_ ? modes_() : kNothing, kNothing, hooks_ ? hooks_() : kNothing};
      find("libc10.so", "_ZN3c104impl26raw_local_dispatch_key_setE", &here.keys);
      if (!here.keys) here.keys = kNothing;
    }
    return here;
  }

  const uint64_t* (*modes_)() = nullptr;
  const uint64_t* (*hooks_)() = nullptr;
  const volatile uint8_t* anomaly_ = nullptr;
  uint16_t (*default_dtype_)() = nullptr;
};

}  // namespace aicf::bindings
