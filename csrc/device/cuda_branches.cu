// A stream that waits for an event of a capture takes part in that capture, until the capture ends.
#include "device/cuda_branches.h"
#include "device/cuda_scope.h"
#include "device/cuda_status.h"

namespace aicf {
namespace {

class CudaBranches final : public BranchStreams {
 public:
  CudaBranches(int index, const cudaStream_t* capture) : index_(index), capture_(capture) {}
  ~CudaBranches() override {
    CurrentDevice current(index_);
    RelaxedCapture relaxed;
    for (cudaEvent_t event : events_) (void)cudaEventDestroy(event);
    for (cudaStream_t stream : streams_) (void)cudaStreamDestroy(stream);
    (void)cudaGetLastError();
  }

  Status create(size_t branches, size_t events) {
    CurrentDevice current(index_);
    RelaxedCapture relaxed;
    for (size_t i = 1; i < branches; ++i) {
      cudaStream_t stream = nullptr;
      AICF_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      streams_.push_back(stream);
    }
    for (size_t i = 0; i < events; ++i) {
      cudaEvent_t event = nullptr;
      AICF_CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
      events_.push_back(event);
    }
    return Status::ok();
  }

  void* stream(size_t branch) override { return at(branch); }
  Status record(size_t event, size_t branch) override {
    CurrentDevice current(index_);
    AICF_CUDA_TRY(cudaEventRecord(events_[event], at(branch)));
    return Status::ok();
  }
  Status wait(size_t event, size_t branch) override {
    CurrentDevice current(index_);
    AICF_CUDA_TRY(cudaStreamWaitEvent(at(branch), events_[event], 0));
    return Status::ok();
  }

 private:
  cudaStream_t at(size_t branch) const { return branch == 0 ? *capture_ : streams_[branch - 1]; }

  const int index_;
  const cudaStream_t* const capture_;
  std::vector<cudaStream_t> streams_;  // of the branches from 1 on
  std::vector<cudaEvent_t> events_;
};

}  // namespace

Status make_cuda_branches(int index, const cudaStream_t* capture, size_t branches, size_t events,
                          std::unique_ptr<BranchStreams>* out) {
  auto made = std::make_unique<CudaBranches>(index, capture);
  AICF_TRY(made->create(branches, events));
  *out = std::move(made);
  return Status::ok();
}

}  // namespace aicf
