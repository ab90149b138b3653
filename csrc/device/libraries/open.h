// How a library is found: the one that this process has loaded, as torch for CUDA does; else the one in a
// folder that the package has named, which is torch's; else the one that the loader finds.
#pragma once
#include <dlfcn.h>

#include <string>
#include <vector>

namespace aicf {

// Before the first use of a library.
void find_libraries_in(std::vector<std::string> folders);
// The handle of the first of these names that is there; null without one, and where the environment variable
// `wanted` is 0.
void* open_library(const std::vector<const char*>& names, const char* wanted);

// False where the library lacks the function.
template <class Function>
bool find_function(void* library, const std::string& name, Function** out) {
  *out = reinterpret_cast<Function*>(dlsym(library, name.c_str()));
  return *out != nullptr;
}

}  // namespace aicf
