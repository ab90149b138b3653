// Moments on a stream are events. The host needs longer to enqueue a launch than a small kernel runs; so that
// its calls are not what is measured, the stream is held back until they are made.
#include <cuda_runtime.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "device/cuda_dependent.cuh"
#include "device/cuda_marks.h"
#include "device/cuda_scope.h"
#include "device/cuda_status.h"

namespace aicf {
namespace {

using Nanoseconds = unsigned long long;
constexpr Nanoseconds kOneCall = 5000;  // more than the host needs to enqueue a launch or an event
constexpr Nanoseconds kLongest =
    50000000;  // behind more calls than that the queue of the stream is full anyhow

__device__ Nanoseconds now() {
  Nanoseconds time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

// Ends by itself, whatever the host does meanwhile: a host that waits for room in the queue goes on.
__global__ void hold_back(Nanoseconds duration) {
  cuda::dependency_wait();
  const Nanoseconds begin = now();
  while (now() - begin < duration) {
  }
}

class CudaMarks final : public Marks {
 public:
  explicit CudaMarks(int index) : index_(index) {}
  ~CudaMarks() override {
    CurrentDevice current(index_);
    for (cudaEvent_t event : events_) (void)cudaEventDestroy(event);
    (void)cudaGetLastError();
  }

  Status create(size_t spans) {
    CurrentDevice current(index_);
    events_.reserve(spans + 1);
    for (size_t i = 0; i <= spans; ++i) {
      cudaEvent_t event = nullptr;
      AICF_CUDA_TRY(cudaEventCreate(&event));
      events_.push_back(event);
    }
    return Status::ok();
  }

  Status begin(size_t calls, void* stream) override {
    CurrentDevice current(index_);
    const Nanoseconds duration = std::min(kOneCall * (calls + 1), kLongest);
    hold_back<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(duration);
    AICF_CUDA_TRY(cudaGetLastError());
    marked_ = 0;
    return mark(stream);
  }

  Status mark(void* stream) override {
    CurrentDevice current(index_);
    AICF_CUDA_TRY(cudaEventRecord(events_[marked_], static_cast<cudaStream_t>(stream)));
    ++marked_;
    return Status::ok();
  }

  Status read(std::vector<double>* seconds) override {
    seconds->clear();
    if (marked_ == 0) return Status::ok();
    CurrentDevice current(index_);
    AICF_CUDA_TRY(cudaEventSynchronize(events_[marked_ - 1]));
    for (size_t i = 1; i < marked_; ++i) {
      float milliseconds = 0;
      AICF_CUDA_TRY(cudaEventElapsedTime(&milliseconds, events_[i - 1], events_[i]));
      seconds->push_back(milliseconds * 1e-3);
    }
    return Status::ok();
  }

 private:
  const int index_;
  std::vector<cudaEvent_t> events_;
  size_t marked_ = 0;
};

}  // namespace

Status make_cuda_marks(int index, size_t spans, std::unique_ptr<Marks>* out) {
  auto marks = std::make_unique<CudaMarks>(index);
  AICF_TRY(marks->create(spans));
  *out = std::move(marks);
  return Status::ok();
}

}  // namespace aicf
