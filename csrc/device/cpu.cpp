// The CPU as a device: a launch is a call, a capture records prepared launches, a replay calls them again.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "device/device.h"

namespace aicf {
namespace {

// Whether the status says that this launch shall do nothing.
bool skipped(const LaunchContext& context) { return context.predicate && *context.predicate != 0; }

class CpuGraph : public Graph {
 public:
  void add(const Node& node) { launches_.push_back(node); }
  Status launch(void*) override {
    for (const Node& node : launches_)
      if (!skipped(node.context)) {
        const Status status = node.launch->launch(node.context);
        if (!status.is_ok()) return node.place ? status.at(*node.place) : status;
      }
    return Status::ok();
  }
  std::vector<GraphNode> nodes() const override {
    std::vector<GraphNode> nodes;
    for (size_t i = 0; i < launches_.size(); ++i) {
      nodes.push_back({"call", launches_[i].launch->name(), i, {}});
      if (i) nodes[i].after = {i - 1};
    }
    return nodes;
  }

 private:
  std::vector<Node> launches_;
};

// There is nothing for a copy to run beside.
class CpuUpload : public Upload {
 public:
  explicit CpuUpload(std::vector<UploadTarget> targets) : targets_(std::move(targets)) {}
  Status load(const std::vector<const void*>& sources, void*) override {
    for (size_t i = 0; i < targets_.size(); ++i)
      if (targets_[i].bytes) std::memmove(targets_[i].data, sources[i], targets_[i].bytes);
    return Status::ok();
  }

 private:
  const std::vector<UploadTarget> targets_;
};

// A launch is complete when its call returns, so a moment is what the clock says. Between two moments the
// clock is asked once, which takes about as long as the smallest launches: what that takes at least is not
// counted.
class CpuMarks : public Marks {
 public:
  explicit CpuMarks(size_t spans) { moments_.reserve(spans + 1); }
  Status begin(size_t, void* stream) override {
    asking_ = Clock::duration::max();
    for (int i = 0; i < kAsked; ++i) {
      const Clock::time_point before = Clock::now();
      asking_ = std::min(asking_, Clock::now() - before);
    }
    moments_.clear();
    return mark(stream);
  }
  Status mark(void*) override {
    moments_.push_back(Clock::now());
    return Status::ok();
  }
  Status read(std::vector<double>* seconds) override {
    seconds->clear();
    for (size_t i = 1; i < moments_.size(); ++i) {
      const Clock::duration span = std::max(moments_[i] - moments_[i - 1] - asking_, Clock::duration::zero());
      seconds->push_back(std::chrono::duration<double>(span).count());
    }
    return Status::ok();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kAsked = 16;
  std::vector<Clock::time_point> moments_;
  Clock::duration asking_{};
};

// A capture belongs to the thread that opened it, as on CUDA: other threads go on running.
thread_local std::unique_ptr<CpuGraph> open_capture;

// Whether the eight bytes around `p` can be read. The kernel reads the new signal mask before it looks at the
// invalid `how`, so a bad address answers EFAULT and a good one EINVAL (the way of Abseil's
// AddressIsReadable).
bool readable(const void* p) {
  const uintptr_t word = reinterpret_cast<uintptr_t>(p) & ~uintptr_t{7};
  const int error = errno;
  const bool fault = syscall(SYS_rt_sigprocmask, ~0, word, nullptr, 8) == -1 && errno == EFAULT;
  errno = error;
  return !fault;
}

// Memory at a multiple of kPlannedAlignment; where the block of the C library begins stands in front of it.
template <class Allocate>
Status aligned(Allocate allocate, size_t bytes, void** out) {
  const size_t more = kPlannedAlignment + sizeof(void*);
  void* block = bytes <= SIZE_MAX - more ? allocate(bytes + more) : nullptr;
  if (!block) return Status::device("out of memory: the CPU cannot give " + std::to_string(bytes) + " bytes");
  const auto begin = reinterpret_cast<uintptr_t>(block) + sizeof(void*);
  const uintptr_t place = (begin + kPlannedAlignment - 1) / kPlannedAlignment * kPlannedAlignment;
  *out = reinterpret_cast<void*>(place);
  static_cast<void**>(*out)[-1] = block;
  return Status::ok();
}

class CpuDevice : public Device {
 public:
  DeviceType type() const override { return DeviceType::Cpu; }
  Target target() const override { return Target{}; }

  Status allocate(size_t bytes, void** out) override { return aligned(std::malloc, bytes, out); }
  // Large memory comes from the system with zeros, which nobody writes: a page that is not used is not there.
  Status allocate_zeros(size_t bytes, void** out) override {
    return aligned([](size_t size) { return std::calloc(size, 1); }, bytes, out);
  }
  void release(void* p) noexcept override {
    if (p) std::free(static_cast<void**>(p)[-1]);
  }
  Status allocate_visible(size_t bytes, void** out) override { return allocate_zeros(bytes, out); }
  void release_visible(void* p) noexcept override { release(p); }
  Status copy(void* dst, const void* src, size_t bytes, void*) override {
    if (bytes) std::memmove(dst, src, bytes);
    return Status::ok();
  }
  Status make_upload(std::vector<UploadTarget> targets, std::unique_ptr<Upload>* out) override {
    *out = std::make_unique<CpuUpload>(std::move(targets));
    return Status::ok();
  }
  Status make_marks(size_t spans, std::unique_ptr<Marks>* out) override {
    *out = std::make_unique<CpuMarks>(spans);
    return Status::ok();
  }
  Status make_branches(size_t, size_t, std::unique_ptr<BranchStreams>*) override {
    return Status::unsupported("the CPU runs launches one after another; leave `branch` away");
  }
  Status fill(void* dst, int byte, size_t bytes, void*) override {
    if (bytes) std::memset(dst, byte, bytes);
    return Status::ok();
  }
  Status synchronize(void*) override { return Status::ok(); }
  Status check_pointer(const void* p) override {
    if (readable(p)) return Status::ok();
    return Status::invalid("the CPU cannot read this address; is it memory of another device, or freed?");
  }

  Status begin_capture() override {
    if (open_capture) return Status::state("a graph is already being recorded on the CPU; end it first");
    open_capture = std::make_unique<CpuGraph>();
    return Status::ok();
  }
  Status end_capture(std::unique_ptr<Graph>* out) override {
    if (!open_capture) return Status::state("no graph is being recorded on the CPU; begin one first");
    *out = std::move(open_capture);
    return Status::ok();
  }
  void abort_capture() noexcept override { open_capture.reset(); }
  bool capturing() const override { return open_capture != nullptr; }

  Status enqueue(const Node& node) override {
    if (!open_capture) return skipped(node.context) ? Status::ok() : node.launch->launch(node.context);
    open_capture->add(node);
    return Status::ok();
  }
};

}  // namespace

Status get_cpu_device(Device** out) {
  static CpuDevice device;
  *out = &device;
  return Status::ok();
}

}  // namespace aicf
