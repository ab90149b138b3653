// What a call to CUDA changes for its thread, and puts back.
#pragma once
#include <cuda_runtime.h>

namespace aicf {

// Makes `index` the current device for a scope: torch may have left another one current.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = index;
    if (before_ != index) (void)cudaSetDevice(index);
    changed_ = before_ != index;
  }
  ~CurrentDevice() {
    if (changed_) (void)cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

// Lets this thread allocate while any thread captures: such a call belongs to no stream and is safe.
class RelaxedCapture {
 public:
  RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace aicf
