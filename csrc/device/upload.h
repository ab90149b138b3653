// Batches that travel to a device while it computes: through two sets of memory, by copies on a stream of
// their own. What a device must offer for it is a lane; when which memory may be written again is decided
// here, for all.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "device/device.h"

namespace aicf {

// Where a source lies, as an upload sees it.
enum class Source {
  Direct,  // take() copies it without waiting for anything: memory of the device, or a few bytes of the host
  Pinned,  // send() reads it while the host goes on
  Pageable,  // to be copied to pinned memory first
};

// The streams of an upload and the memory on both sides: copies beside the step, and the step. Sets are
// numbered from 0 to kSets - 1; a mark that was never made counts as passed.
class UploadLane {
 public:
  static constexpr int kSets = 2;
  virtual ~UploadLane() = default;

  virtual Status where(const void* source, size_t bytes, Source* out) = 0;
  // One block each, kept until the lane goes; the lane waits for all copies before.
  virtual Status allocate_pinned(size_t bytes, char** out) = 0;
  virtual Status allocate_staging(size_t bytes, char** out) = 0;

  // On the stream of copies.
  virtual Status wait_taken(int set) = 0;
  virtual Status send(void* staging, const void* host, size_t bytes) = 0;
  virtual Status mark_sent(int set) = 0;
  // On `stream`, that of the step.
  virtual Status wait_sent(int set, void* stream) = 0;
  virtual Status take(void* target, const void* source, size_t bytes, void* stream) = 0;
  virtual Status mark_taken(int set, void* stream) = 0;
  // The host waits: for the copies of a set, or for all.
  virtual Status finish_sent(int set) = 0;
  virtual Status finish() = 0;
};

// Host memory is copied to a pinned buffer by the threads of the pool, or read where it lies if it is pinned;
// it goes to the staging memory of a set beside what the device computes, and from there to its target in the
// order of the step's stream. The host waits only for copies of the batch before the last, which is at most
// four batches behind it, and for the copies of pinned sources, which are free for reuse on return too.
class StagedUpload final : public Upload {
 public:
  StagedUpload(std::unique_ptr<UploadLane> lane, std::vector<UploadTarget> targets);
  Status load(const std::vector<const void*>& sources, void* stream) override;

 private:
  static constexpr size_t kPiece = size_t{4} << 20;    // bytes that are sent while the next are copied
  static constexpr int64_t kGrain = int64_t{1} << 18;  // bytes, the least that a thread of the pool copies

  // Target `i`, from memory of the device.
  Status take(size_t i, const void* source, void* stream);
  Status load_staged(const std::vector<const void*>& sources, void* stream);
  Status reserve(bool pinned);
  Status send_pageable(char* staging, char* pinned, const char* source, size_t bytes);

  const std::unique_ptr<UploadLane> lane_;
  const std::vector<UploadTarget> targets_;
  std::vector<size_t> offsets_;  // of each target in a set
  size_t set_bytes_ = 0;
  std::vector<Source> where_;  // of the sources of the call
  char* staging_ = nullptr;    // kSets sets, from the first batch of host memory on
  char* pinned_ = nullptr;     // the same, from the first pageable one on
  int set_ = 0;                // of the next batch
};

}  // namespace aicf
