#include "device/libraries/cublaslt.h"

#include <optional>

#include "device/libraries/open.h"

namespace aicf::cublaslt {
namespace {

template <class Function>
bool find(void* library, const char* name, Function** out) {
  return find_function(library, std::string("cublasLt") + name, out);
}

std::optional<Library> load() {
  void* opened = open_library({"libcublasLt.so.13", "libcublasLt.so.12"}, "AICF_CUBLASLT");
  if (!opened) return std::nullopt;
  Library lib{};
  const bool whole =
      find(opened, "GetVersion", &lib.version) && find(opened, "GetStatusName", &lib.status_name) &&
      find(opened, "Create", &lib.create) && find(opened, "MatmulDescCreate", &lib.create_descriptor) &&
      find(opened, "MatmulDescSetAttribute", &lib.set_descriptor) &&
      find(opened, "MatmulDescDestroy", &lib.destroy_descriptor) &&
      find(opened, "MatrixLayoutCreate", &lib.create_layout) &&
      find(opened, "MatrixLayoutSetAttribute", &lib.set_layout) &&
      find(opened, "MatrixLayoutDestroy", &lib.destroy_layout) &&
      find(opened, "MatmulPreferenceCreate", &lib.create_preference) &&
      find(opened, "MatmulPreferenceSetAttribute", &lib.set_preference) &&
      find(opened, "MatmulPreferenceDestroy", &lib.destroy_preference) &&
      find(opened, "MatmulAlgoGetHeuristic", &lib.heuristic) &&
      find(opened, "MatmulAlgoConfigGetAttribute", &lib.attribute) && find(opened, "Matmul", &lib.multiply);
  if (!whole) return std::nullopt;
  return lib;
}

// The numbers of an algorithm's configuration, and how wide each is.
struct Number {
  const char* name;
  int attribute;
  size_t bytes;
};
constexpr Number kNumbers[] = {{"id", 0, 4},     {"tile", 1, 4},      {"stages", 6, 4},
                               {"splitk", 2, 4}, {"reduction", 3, 4}, {"swizzle", 4, 4},
                               {"custom", 5, 4}, {"inner", 7, 2},     {"cluster", 8, 2}};

}  // namespace

const Library* library() {
  static const std::optional<Library> loaded = load();
  return loaded ? &*loaded : nullptr;
}

std::string name_of(const Library& lib, const Algorithm& algorithm) {
  std::string text;
  for (const Number& number : kNumbers) {
    int32_t value = 0;
    size_t written = 0;
    const bool known = lib.attribute(&algorithm, number.attribute, &value, number.bytes, &written) == 0;
    text +=
        (text.empty() ? "" : ", ") + std::string(number.name) + " " + (known ? std::to_string(value) : "?");
  }
  return text;
}

Status check(const Library& lib, int status, const char* what) {
  if (status == 0) return Status::ok();
  return Status::device("cuBLASLt " + std::to_string(lib.version()) + ": " + what +
                        " failed: " + lib.status_name(status));
}

}  // namespace aicf::cublaslt
