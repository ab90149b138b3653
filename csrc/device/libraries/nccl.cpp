#include "device/libraries/nccl.h"

#include <optional>
#include <string>

#include "device/libraries/open.h"

namespace aicf::nccl {
namespace {

template <class Function>
bool find(void* library, const char* name, Function** out) {
  return find_function(library, std::string("nccl") + name, out);
}

std::optional<Library> load() {
  void* opened = open_library({"libnccl.so.2"}, "AICF_NCCL");
  if (!opened) return std::nullopt;
  Library lib{};
  const bool whole = find(opened, "GetVersion", &lib.version) && find(opened, "GetErrorString", &lib.error) &&
                     find(opened, "GetUniqueId", &lib.unique_id) &&
                     find(opened, "CommInitRank", &lib.init_rank) &&
                     find(opened, "CommGetAsyncError", &lib.async_error) &&
                     find(opened, "CommAbort", &lib.abort) && find(opened, "AllGather", &lib.all_gather);
  if (!whole) return std::nullopt;
  return lib;
}

}  // namespace

const Library* library() {
  static const std::optional<Library> loaded = load();
  return loaded ? &*loaded : nullptr;
}

Status check(const Library& lib, int status, const char* what) {
  if (status == kSuccess) return Status::ok();
  int version = 0;
  (void)lib.version(&version);
  return Status::device("NCCL " + std::to_string(version) + ": " + what + " failed: " + lib.error(status));
}

}  // namespace aicf::nccl
