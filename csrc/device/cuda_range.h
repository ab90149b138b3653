// A name on the time line of whoever records one, such as Nsight Systems: NVTX, which calls nobody elsewhere.
#pragma once
#include <string>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define AICF_NVTX 1
#endif

namespace aicf {

// What the host enqueues within the life of the object; without a name, or without NVTX in CUDA's toolkit,
// nothing.
class NamedRange {
 public:
  explicit NamedRange(const std::string* name) : named_(name != nullptr) {
#ifdef AICF_NVTX
    if (named_) nvtxRangePushA(name->c_str());
#endif
  }
  ~NamedRange() {
#ifdef AICF_NVTX
    if (named_) nvtxRangePop();
#endif
  }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

 private:
  const bool named_;
};

}  // namespace aicf
