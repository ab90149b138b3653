#include "device/libraries/open.h"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

namespace aicf {
namespace {

std::vector<std::string>& folders() {
  static auto* list = new std::vector<std::string>();
  return *list;
}

}  // namespace

void find_libraries_in(std::vector<std::string> list) { folders() = std::move(list); }

void* open_library(const std::vector<const char*>& names, const char* wanted) {
  const char* asked = std::getenv(wanted);
  if (asked && std::string(asked) == "0") return nullptr;
  constexpr int kHow = RTLD_NOW | RTLD_LOCAL;
  for (const char* name : names)
    if (void* library = dlopen(name, kHow | RTLD_NOLOAD)) return library;
  for (const std::string& folder : folders())
    for (const char* name : names)
      if (void* library = dlopen((folder + "/" + name).c_str(), kHow)) return library;
  for (const char* name : names)
    if (void* library = dlopen(name, kHow)) return library;
  return nullptr;
}

}  // namespace aicf
