// The libraries that a target may have: what a kernel is of, and how a target names it.
#pragma once
#include <cstdint>

namespace aicf {

enum class Library : uint8_t { None, CublasLt, Cudnn };

struct LibraryRow {
  Library library;
  const char* name;   // in a target: "sm_90+cublaslt+cudnn"
  const char* title;  // in a sentence
};
// In the order of a target's name. How each is found, and why it is missing: device/libraries.
constexpr LibraryRow kLibraries[] = {{Library::CublasLt, "cublaslt", "cuBLASLt"},
                                     {Library::Cudnn, "cudnn", "cuDNN"}};

class Libraries {
 public:
  constexpr bool has(Library library) const {
    return library == Library::None || (bits_ & bit(library)) != 0;
  }
  constexpr Libraries with(Library library) const {
    Libraries more;
    more.bits_ = bits_ | bit(library);
    return more;
  }

 private:
  static constexpr uint32_t bit(Library library) { return 1u << static_cast<uint32_t>(library); }
  uint32_t bits_ = 0;
};

}  // namespace aicf
