// What a device does, with the same verbs for all. Kernels never see it; the executor and the bindings do.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "device/branches.h"
#include "device/graph_nodes.h"
#include "op/status.h"
#include "op/variant.h"

namespace aicf {

// A captured sequence of launches, replayed with the very same addresses. Destroying it frees it.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual Status launch(void* stream) = 0;
  // All of its nodes, those of an earlier launch first.
  virtual std::vector<GraphNode> nodes() const = 0;
  // Dependencies that let a launch be started before the one in front of it has ended.
  virtual size_t programmatic_edges() const { return 0; }
};

// Where an entry of a batch goes.
struct UploadTarget {
  void* data = nullptr;
  size_t bytes = 0;
};

// Brings one batch after the other to the same places of a device.
class Upload {
 public:
  virtual ~Upload() = default;
  // One source for each target, of the host or of the device. Ordered on `stream`; host memory is free for
  // reuse on return. One caller at a time.
  virtual Status load(const std::vector<const void*>& sources, void* stream) = 0;
};

// Moments on a stream, and how far they are apart. Made before there is anything to measure: nothing is
// allocated between two of them.
class Marks {
 public:
  virtual ~Marks() = default;
  // The first moment. `calls` enqueued launches and marks follow: a device that runs beside the host starts
  // when the host is likely to be ahead of it, so that what is measured is the device alone.
  virtual Status begin(size_t calls, void* stream) = 0;
  // The next moment: when everything that was enqueued before it is complete. At most as many as it was made
  // for.
  virtual Status mark(void* stream) = 0;
  // Waits for the last moment; the seconds between each and the next, less what a moment itself takes.
  virtual Status read(std::vector<double>* seconds) = 0;
};

// A launch, and the earlier ones of the same step that must be complete before it starts. Where launches are
// run or recorded one after the other that holds by itself; where not, whoever records says it by events.
struct Node {
  LaunchPointer launch;
  LaunchContext context;
  const std::vector<size_t>* after = nullptr;
  const std::string* place = nullptr;  // for errors; lives as long as what is recorded
  void* branch = nullptr;              // in a capture, the stream of its branch; null on that of the capture
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceType type() const = 0;
  virtual Target target() const = 0;

  virtual Status allocate(size_t bytes, void** out) = 0;  // aligned to 256 bytes at least
  virtual void release(void* p) noexcept = 0;
  // Memory that both the device and the host reach, zero-filled: what a kernel writes there the host may read
  // without waiting.
  virtual Status allocate_visible(size_t bytes, void** out) = 0;
  virtual void release_visible(void* p) noexcept = 0;
  // Any of the two sides may be host memory. Ordered on `stream`; host memory is free for reuse on return.
  virtual Status copy(void* dst, const void* src, size_t bytes, void* stream) = 0;
  // What brings batches to `targets`, if it can while the device computes.
  virtual Status make_upload(std::vector<UploadTarget> targets, std::unique_ptr<Upload>* out) = 0;
  // Marks for `spans` times, so for one moment more.
  virtual Status make_marks(size_t spans, std::unique_ptr<Marks>* out) = 0;
  // Streams for so many branches of a capture, that of the capture included, and events between them. Not
  // while a capture is open. Unsupported where launches are recorded one after the other.
  virtual Status make_branches(size_t branches, size_t events, std::unique_ptr<BranchStreams>* out) = 0;
  virtual Status fill(void* dst, int byte, size_t bytes, void* stream) = 0;
  virtual Status synchronize(void* stream) = 0;
  // Refuses a pointer that this device cannot read; a host pointer on CUDA, a device pointer on the CPU.
  virtual Status check_pointer(const void* p) = 0;

  // While a capture is open, enqueue() records instead of running. One open capture per device.
  virtual Status begin_capture() = 0;
  virtual Status end_capture(std::unique_ptr<Graph>* out) = 0;
  virtual void abort_capture() noexcept = 0;
  virtual bool capturing() const = 0;
  // Runs the launch on `node.context.stream`, or records it into the open capture.
  virtual Status enqueue(const Node& node) = 0;

  // As allocate, with zeros, which are there once the work on the null stream is done.
  virtual Status allocate_zeros(size_t bytes, void** out) {
    AICF_TRY(allocate(bytes, out));
    const Status filled = fill(*out, 0, bytes, nullptr);
    if (!filled.is_ok()) release(*out);
    return filled;
  }
};

// "cpu", "cuda" (which is "cuda:0"), "cuda:1"; says nothing on whether there is such a device.
Status parse_device(const std::string& name, DeviceType* type, int* index);
// The device lives as long as the process. Fails where there is no such device.
Status get_device(const std::string& name, Device** out);
int cuda_device_count();  // 0 without a driver or without a CUDA build
Status get_cpu_device(Device** out);
#ifdef AICF_WITH_CUDA
Status get_cuda_device(int index, Device** out);
#endif

}  // namespace aicf
