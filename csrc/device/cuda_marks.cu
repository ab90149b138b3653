// Moments on a stream are events. The host needs longer to enqueue a launch than a small kernel runs; so that
// its calls are not what is measured, the stream is held back until they are made. An event between two
// kernels keeps them apart: what it adds between kernels that do nothing is measured once for a device, and
// not counted.
#include <cuda_runtime.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>
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

Status hold(size_t calls, cudaStream_t stream) {
  hold_back<<<1, 1, 0, stream>>>(std::min(kOneCall * (calls + 1), kLongest));
  AICF_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

__global__ void do_nothing() { cuda::dependency_wait(); }

constexpr size_t kKernels = 32;  // that do nothing, in a row
constexpr int kRows = 8;         // of which the fastest counts

// A row of such kernels with an event behind each, or behind the last one alone.
Status time_row(bool each, cudaStream_t stream, cudaEvent_t (&events)[3], float* milliseconds) {
  AICF_TRY(hold(2 * kKernels + 1, stream));
  AICF_CUDA_TRY(cudaEventRecord(events[0], stream));
  for (size_t i = 1; i <= kKernels; ++i) {
    do_nothing<<<1, 32, 0, stream>>>();
    AICF_CUDA_TRY(cudaGetLastError());
    if (i == kKernels || each) AICF_CUDA_TRY(cudaEventRecord(events[i == kKernels ? 1 : 2], stream));
  }
  AICF_CUDA_TRY(cudaEventSynchronize(events[1]));
  AICF_CUDA_TRY(cudaEventElapsedTime(milliseconds, events[0], events[1]));
  return Status::ok();
}

// On the current device: what an event between two kernels adds.
Status measure_mark(double* seconds) {
  cudaStream_t stream = nullptr;
  cudaEvent_t events[3] = {};
  const auto measure = [&]() -> Status {
    AICF_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (cudaEvent_t& event : events) AICF_CUDA_TRY(cudaEventCreate(&event));
    float least[2] = {};  // without, with
    for (int row = 0; row < kRows; ++row) {
      for (int each = 0; each < 2; ++each) {
        float milliseconds = 0;
        AICF_TRY(time_row(each == 1, stream, events, &milliseconds));
        least[each] = row == 0 ? milliseconds : std::min(least[each], milliseconds);
      }
    }
    *seconds = std::max(0.0f, least[1] - least[0]) * 1e-3 / (kKernels - 1);
    return Status::ok();
  };
  const Status status = measure();
  for (cudaEvent_t event : events)
    if (event) (void)cudaEventDestroy(event);
  if (stream) (void)cudaStreamDestroy(stream);
  return status;
}

// The same, measured once in the process.
Status mark_of(int device, double* seconds) {
  static std::mutex mutex;
  static std::unordered_map<int, double> known;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known.find(device);
  if (found == known.end()) {
    AICF_TRY(measure_mark(seconds));
    known.emplace(device, *seconds);
  } else {
    *seconds = found->second;
  }
  return Status::ok();
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
    return spans > 1 ? mark_of(index_, &mark_) : Status::ok();
  }

  Status begin(size_t calls, void* stream) override {
    CurrentDevice current(index_);
    AICF_TRY(hold(calls, static_cast<cudaStream_t>(stream)));
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
      const double between = i + 1 < marked_ ? mark_ : 0;  // a step without marks has one behind it too
      seconds->push_back(std::max(0.0, milliseconds * 1e-3 - between));
    }
    return Status::ok();
  }

 private:
  const int index_;
  double mark_ = 0;  // seconds
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
