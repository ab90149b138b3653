// A loader of relocatable x86-64 objects (ELF64) from memory: what a compiler emits for one kernel that calls
// nothing outside of itself. Every offset and size is checked against the buffer.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>

#include "op/status.h"

namespace aicf {

class ObjectImage {
 public:
  // Places the sections of `object`, relocates them, and makes text executable and constants read-only; no
  // page is ever both writable and executable. Refuses objects of another machine or another kind, damaged
  // ones, and symbols that it does not define, by name.
  static Status load(const std::string& object, std::unique_ptr<ObjectImage>* out);
  ~ObjectImage();
  ObjectImage(const ObjectImage&) = delete;
  ObjectImage& operator=(const ObjectImage&) = delete;

  // The function called `name`; null where the object has none.
  void* function(const std::string& name) const;

 private:
  ObjectImage(void* pages, size_t bytes) : pages_(pages), bytes_(bytes) {}
  void* const pages_;
  const size_t bytes_;
  std::unordered_map<std::string, void*> functions_;
};

}  // namespace aicf
