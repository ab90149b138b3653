// CUDA behind the verbs of device.h: memory, ordered copies, and capture on a stream of its own.
#include <cuda_runtime.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/cuda_branches.h"
#include "device/cuda_dependent.cuh"
#include "device/cuda_graph_nodes.h"
#include "device/cuda_marks.h"
#include "device/cuda_range.h"
#include "device/cuda_scope.h"
#include "device/cuda_status.h"
#include "device/cuda_upload.h"
#include "device/device.h"
#include "device/libraries/found.h"

namespace aicf {
namespace {

// A host write small enough to travel as a kernel argument: CUDA copies arguments at launch, so the
// caller's memory is free at once, without waiting for the work that is still queued on the stream.
struct SmallWrite {
  static constexpr size_t kMost = 1024;
  unsigned char bytes[kMost];
};
__global__ void write_small(unsigned char* destination, const __grid_constant__ SmallWrite source,
                            int count) {
  cuda::dependency_wait();
  for (int i = threadIdx.x; i < count; i += blockDim.x) destination[i] = source.bytes[i];
}

cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

class CudaGraph final : public Graph {
 public:
  CudaGraph(int index, cudaGraphExec_t exec, std::vector<GraphNode> nodes, size_t programmatic_edges)
      : index_(index), exec_(exec), nodes_(std::move(nodes)), programmatic_edges_(programmatic_edges) {}
  ~CudaGraph() override {
    CurrentDevice current(index_);
    (void)cudaGraphExecDestroy(exec_);
  }
  Status launch(void* stream) override {
    CurrentDevice current(index_);
    AICF_CUDA_TRY(cudaGraphLaunch(exec_, as_stream(stream)));
    return Status::ok();
  }
  std::vector<GraphNode> nodes() const override { return nodes_; }
  size_t programmatic_edges() const override { return programmatic_edges_; }

 private:
  int index_;
  cudaGraphExec_t exec_;
  std::vector<GraphNode> nodes_;
  size_t programmatic_edges_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, int sm) : index_(index), sm_(sm) {}

  DeviceType type() const override { return DeviceType::Cuda; }
  Target target() const override { return Target{DeviceType::Cuda, sm_, found_libraries()}; }

  Status allocate(size_t bytes, void** out) override {
    CurrentDevice current(index_);
    RelaxedCapture relaxed;
    const cudaError_t error = cudaMalloc(out, bytes ? bytes : 1);
    if (error == cudaErrorMemoryAllocation) return out_of_memory(bytes);
    return cuda_status(error, "cudaMalloc", __FILE__, __LINE__);
  }

  // Waits for the work that may still use the memory. Inside a capture that would break it, so the memory
  // goes at its end.
  void release(void* p) noexcept override {
    if (!p) return;
    {
      const std::lock_guard<std::mutex> lock(released_mutex_);
      if (capturing()) {
        released_.push_back(p);
        return;
      }
    }
    CurrentDevice current(index_);
    RelaxedCapture relaxed;
    if (cudaFree(p) != cudaSuccess) (void)cudaGetLastError();
  }

  // Mapped: the host's address is the device's too.
  Status allocate_visible(size_t bytes, void** out) override {
    CurrentDevice current(index_);
    RelaxedCapture relaxed;
    AICF_CUDA_TRY(cudaHostAlloc(out, bytes ? bytes : 1, cudaHostAllocMapped | cudaHostAllocPortable));
    std::memset(*out, 0, bytes);
    return Status::ok();
  }
  void release_visible(void* p) noexcept override {
    CurrentDevice current(index_);
    RelaxedCapture relaxed;
    if (cudaFreeHost(p) != cudaSuccess) (void)cudaGetLastError();
  }

  Status copy(void* dst, const void* src, size_t bytes, void* stream) override {
    if (bytes == 0) return Status::ok();
    CurrentDevice current(index_);
    bool from_host = false, to_host = false;
    AICF_TRY(is_host(src, &from_host));
    AICF_TRY(is_host(dst, &to_host));
    if (from_host && !to_host && bytes <= SmallWrite::kMost) {
      SmallWrite source;
      std::memcpy(source.bytes, src, bytes);
      write_small<<<1, 128, 0, as_stream(stream)>>>(static_cast<unsigned char*>(dst), source,
                                                    static_cast<int>(bytes));
      AICF_CUDA_TRY(cudaGetLastError());
      return Status::ok();
    }
    AICF_CUDA_TRY(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, as_stream(stream)));
    if (from_host || to_host) AICF_CUDA_TRY(cudaStreamSynchronize(as_stream(stream)));
    return Status::ok();
  }

  Status make_upload(std::vector<UploadTarget> targets, std::unique_ptr<Upload>* out) override {
    *out =
        std::make_unique<StagedUpload>(make_cuda_lane(*this, index_, SmallWrite::kMost), std::move(targets));
    return Status::ok();
  }

  Status make_marks(size_t spans, std::unique_ptr<Marks>* out) override {
    return make_cuda_marks(index_, spans, out);
  }

  Status make_branches(size_t branches, size_t events, std::unique_ptr<BranchStreams>* out) override {
    return make_cuda_branches(index_, &stream_, branches, events, out);
  }

  Status fill(void* dst, int byte, size_t bytes, void* stream) override {
    if (bytes == 0) return Status::ok();
    CurrentDevice current(index_);
    AICF_CUDA_TRY(cudaMemsetAsync(dst, byte, bytes, as_stream(stream)));
    return Status::ok();
  }

  Status synchronize(void* stream) override {
    CurrentDevice current(index_);
    AICF_CUDA_TRY(cudaStreamSynchronize(as_stream(stream)));
    return Status::ok();
  }

  Status check_pointer(const void* p) override {
    CurrentDevice current(index_);
    cudaPointerAttributes attributes = {};
    AICF_CUDA_TRY(cudaPointerGetAttributes(&attributes, p));
    const std::string here = name();
    if (attributes.type == cudaMemoryTypeManaged) return Status::ok();
    if (attributes.type != cudaMemoryTypeDevice)
      return Status::invalid("expected memory of " + here + ", got host memory; move the tensor with .to(\"" +
                             here + "\") first");
    if (attributes.device != index_)
      return Status::invalid("expected memory of " + here +
                             ", got memory of cuda:" + std::to_string(attributes.device) +
                             "; move the tensor with .to(\"" + here + "\") first");
    return Status::ok();
  }

  Status begin_capture() override {
    if (capturing())
      return Status::state("a graph is already being captured on " + name() + "; end that capture first");
    CurrentDevice current(index_);
    if (!stream_) AICF_CUDA_TRY(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    AICF_CUDA_TRY(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    first_error_.reset();
    tails_.clear();
    nodes_.clear();
    programmatic_ = cuda::wants_programmatic_edges();
    owner_ = std::this_thread::get_id();
    return Status::ok();
  }

  // A capture in which any launch failed yields no graph: the error is that of the first one.
  Status end_capture(std::unique_ptr<Graph>* out) override {
    if (!capturing())
      return Status::state("no graph is being captured on " + name() + "; begin a capture first");
    if (owner_.load() != std::this_thread::get_id())
      return Status::state("the capture on " + name() + " was begun by another thread; end it there");
    CurrentDevice current(index_);
    const OwnedGraph graph = finish();
    if (first_error_) return Status::capture("capture failed: " + first_error_->message());
    std::vector<GraphNode> nodes;
    size_t programmatic = 0;
    AICF_TRY(nodes_.read(graph.get(), &nodes, &programmatic));
    cudaGraphExec_t exec = nullptr;
    AICF_CUDA_TRY(cudaGraphInstantiate(&exec, graph.get(), 0));
    auto owned = std::make_unique<CudaGraph>(index_, exec, std::move(nodes), programmatic);
    AICF_CUDA_TRY(cudaGraphUpload(exec, stream_));  // here, so that the first replay does not pay for it
    AICF_CUDA_TRY(cudaStreamSynchronize(stream_));
    *out = std::move(owned);
    return Status::ok();
  }

  void abort_capture() noexcept override {
    if (!capturing()) return;
    CurrentDevice current(index_);
    (void)finish();
  }

  bool capturing() const override { return owner_.load() != std::thread::id(); }

  Status enqueue(const Node& node) override {
    CurrentDevice current(index_);
    LaunchContext ctx = node.context;
    if (capturing()) {
      if (owner_.load() != std::this_thread::get_id())
        return Status::state("a graph is being captured on " + name() +
                             " by another thread; wait until it has ended");
      ctx.stream = node.branch ? node.branch : stream_;
    }
    const NamedRange range(node.place);
    const Status launched = capturing() ? record(*node.launch, ctx) : node.launch->launch(ctx);
    if (launched.is_ok()) return launched;
    const Status status = launched.at(node.launch->name());
    if (capturing() && !first_error_) first_error_.emplace(status);
    return status;
  }

 private:
  struct GraphDeleter {
    void operator()(cudaGraph_t graph) const { (void)cudaGraphDestroy(graph); }
  };
  using OwnedGraph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, GraphDeleter>;

  std::string name() const { return "cuda:" + std::to_string(index_); }

  // Into the open capture. A launch that has just waited for an event of another branch gets full edges.
  Status record(const LaunchState& launch, LaunchContext ctx) {
    const cudaStream_t stream = as_stream(ctx.stream);
    if (programmatic_) AICF_TRY(tails_.is_alone(stream, &ctx.programmatic));
    AICF_TRY(nodes_.begins(stream));
    AICF_TRY(launch.launch(ctx));
    AICF_TRY(nodes_.recorded(stream));
    return programmatic_ ? tails_.recorded(stream) : Status::ok();
  }

  // Ends the capture on the stream and closes it here; an invalidated capture leaves its error in
  // first_error_.
  OwnedGraph finish() noexcept {
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(stream_, &graph);
    if (error != cudaSuccess) {
      const Status status = cuda_status(error, "cudaStreamEndCapture", __FILE__, __LINE__);
      if (!first_error_) first_error_.emplace(status);
      if (error == cudaErrorStreamCaptureWrongThread) stream_ = nullptr;  // no other thread can end it
    }
    std::vector<void*> released;
    {
      const std::lock_guard<std::mutex> lock(released_mutex_);
      owner_ = std::thread::id();
      released.swap(released_);
    }
    for (void* p : released) release(p);
    return OwnedGraph(graph);
  }

  static Status is_host(const void* p, bool* out) {
    cudaPointerAttributes attributes = {};
    AICF_CUDA_TRY(cudaPointerGetAttributes(&attributes, p));
    *out = attributes.type == cudaMemoryTypeHost || attributes.type == cudaMemoryTypeUnregistered;
    return Status::ok();
  }

  Status out_of_memory(size_t bytes) {
    (void)cudaGetLastError();
    size_t free_bytes = 0, total_bytes = 0;
    (void)cudaMemGetInfo(&free_bytes, &total_bytes);
    return Status::device(name() + " is out of memory: asked for " + std::to_string(bytes) + " bytes, " +
                          std::to_string(free_bytes) + " of " + std::to_string(total_bytes) +
                          " are free; use a smaller batch, or free other tensors (torch.cuda.empty_cache())");
  }

  int index_;
  int sm_;
  cudaStream_t stream_ = nullptr;                          // captures only; made by the first one
  std::atomic<std::thread::id> owner_{std::thread::id()};  // of the open capture
  std::optional<Status> first_error_;                      // of the open capture
  bool programmatic_ = false;                              // whether the open capture may have such edges
  cuda::CaptureTails tails_;                               // of the open capture
  cuda::CaptureNodes nodes_;                               // of the open capture
  std::mutex released_mutex_;
  std::vector<void*> released_;  // while a capture was open
};

}  // namespace

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();  // no driver or no device: that is an answer, not an error
  return 0;
}

Status get_cuda_device(int index, Device** out) {
  static std::mutex mutex;
  // Never destroyed: at exit the CUDA driver may be gone before it.
  static auto* devices =
      new std::vector<std::unique_ptr<CudaDevice>>(static_cast<size_t>(cuda_device_count()));
  const int count = static_cast<int>(devices->size());
  if (index < 0 || index >= count)
    return Status::device("there is no device cuda:" + std::to_string(index) + ": this machine has " +
                          std::to_string(count) +
                          " usable CUDA devices; use device=\"cpu\", or see nvidia-smi");
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<CudaDevice>& slot = (*devices)[static_cast<size_t>(index)];
  if (!slot) {
    int major = 0, minor = 0;
    AICF_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
    AICF_CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index));
    slot = std::make_unique<CudaDevice>(index, major * 10 + minor);
  }
  *out = slot.get();
  return Status::ok();
}

}  // namespace aicf
