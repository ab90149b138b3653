// Copies on a stream of their own, in order with the step's by events. The stream is one that does not wait
// for the default stream, which torch computes on.
#include <cuda_runtime.h>

#include "device/buffer.h"
#include "device/cuda_scope.h"
#include "device/cuda_status.h"
#include "device/cuda_upload.h"

namespace aicf {
namespace {

class CudaLane final : public UploadLane {
 public:
  CudaLane(Device& device, int index, size_t direct_bytes)
      : device_(device), index_(index), direct_bytes_(direct_bytes) {}

  ~CudaLane() override {
    CurrentDevice current(index_);
    RelaxedCapture relaxed;
    if (copies_) (void)cudaStreamSynchronize(copies_);
    staging_.reset();  // waits for what the step still takes from it
    if (pinned_) device_.release_visible(pinned_);
    for (int set = 0; set < kSets; ++set) {
      if (sent_[set]) (void)cudaEventDestroy(sent_[set]);
      if (taken_[set]) (void)cudaEventDestroy(taken_[set]);
    }
    if (copies_) (void)cudaStreamDestroy(copies_);
    (void)cudaGetLastError();
  }

  Status where(const void* source, size_t bytes, Source* out) override {
    *out = Source::Direct;
    if (bytes == 0) return Status::ok();
    CurrentDevice current(index_);
    cudaPointerAttributes first = {}, last = {};
    AICF_CUDA_TRY(cudaPointerGetAttributes(&first, source));
    if (first.type == cudaMemoryTypeDevice || first.type == cudaMemoryTypeManaged) return Status::ok();
    if (bytes <= direct_bytes_) return Status::ok();
    *out = Source::Pageable;
    if (first.type != cudaMemoryTypeHost) return Status::ok();
    AICF_CUDA_TRY(cudaPointerGetAttributes(&last, static_cast<const char*>(source) + bytes - 1));
    if (last.type == cudaMemoryTypeHost) *out = Source::Pinned;  // else only its beginning is registered
    return Status::ok();
  }

  Status allocate_pinned(size_t bytes, char** out) override {
    AICF_TRY(device_.allocate_visible(bytes, &pinned_));
    *out = static_cast<char*>(pinned_);
    return Status::ok();
  }
  Status allocate_staging(size_t bytes, char** out) override {
    AICF_TRY(create());
    AICF_TRY(DeviceBuffer::allocate(device_, bytes, &staging_));
    *out = static_cast<char*>(staging_.data());
    return Status::ok();
  }

  Status wait_taken(int set) override {
    CurrentDevice current(index_);
    AICF_CUDA_TRY(cudaStreamWaitEvent(copies_, taken_[set], 0));
    return Status::ok();
  }
  Status send(void* staging, const void* host, size_t bytes) override {
    CurrentDevice current(index_);
    AICF_CUDA_TRY(cudaMemcpyAsync(staging, host, bytes, cudaMemcpyHostToDevice, copies_));
    return Status::ok();
  }
  Status mark_sent(int set) override {
    CurrentDevice current(index_);
    AICF_CUDA_TRY(cudaEventRecord(sent_[set], copies_));
    return Status::ok();
  }
  Status wait_sent(int set, void* stream) override {
    CurrentDevice current(index_);
    AICF_CUDA_TRY(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), sent_[set], 0));
    return Status::ok();
  }
  Status take(void* target, const void* source, size_t bytes, void* stream) override {
    return device_.copy(target, source, bytes, stream);
  }
  Status mark_taken(int set, void* stream) override {
    CurrentDevice current(index_);
    AICF_CUDA_TRY(cudaEventRecord(taken_[set], static_cast<cudaStream_t>(stream)));
    return Status::ok();
  }
  Status finish_sent(int set) override {
    CurrentDevice current(index_);
    AICF_CUDA_TRY(cudaEventSynchronize(sent_[set]));
    return Status::ok();
  }
  Status finish() override {
    CurrentDevice current(index_);
    if (copies_) AICF_CUDA_TRY(cudaStreamSynchronize(copies_));
    return Status::ok();
  }

 private:
  // What is missing of stream and events: a step that is given no host memory needs none.
  Status create() {
    CurrentDevice current(index_);
    RelaxedCapture relaxed;
    if (!copies_) AICF_CUDA_TRY(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking));
    for (int set = 0; set < kSets; ++set)
      for (cudaEvent_t* event : {&sent_[set], &taken_[set]})
        if (!*event) AICF_CUDA_TRY(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    return Status::ok();
  }

  Device& device_;
  const int index_;
  const size_t direct_bytes_;
  cudaStream_t copies_ = nullptr;
  cudaEvent_t sent_[kSets] = {}, taken_[kSets] = {};
  void* pinned_ = nullptr;
  DeviceBuffer staging_;
};

}  // namespace

std::unique_ptr<UploadLane> make_cuda_lane(Device& device, int index, size_t direct_bytes) {
  return std::make_unique<CudaLane>(device, index, direct_bytes);
}

}  // namespace aicf
