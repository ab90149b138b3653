// Convolutions by cuDNN: the engine that its heuristics prefer among those whose bits are always the same, or
// the one that a plan names.
#include <algorithm>
#include <memory>
#include <sstream>
#include <string>

#include "device/cuda_scope.h"
#include "device/cuda_status.h"
#include "kernels/convolution/cudnn_graph.h"
#include "kernels/convolution/launch.h"

namespace aicf {
namespace {

constexpr const char* kPlain = "naive";  // where no engine takes it
constexpr int kMostChoices = 6;

cudnn::DataType data_type(DType dtype) {
  return dtype == DType::F16 ? cudnn::kF16 : dtype == DType::BF16 ? cudnn::kBF16 : cudnn::kF32;
}

// Two spatial dimensions, or three.
std::vector<int64_t> spatial(const Convolution& c, const int64_t* numbers) {
  return {numbers + (c.rank == kMostSpatial ? 0 : 1), numbers + kMostSpatial};
}

cudnn::Tensor tensor_of(const Convolution& c, int64_t id, int64_t first, int64_t channels,
                        const int64_t* size) {
  cudnn::Tensor t{id, data_type(c.dtype), {first, channels}, {}, 16};
  const std::vector<int64_t> own = spatial(c, size);
  t.shape.insert(t.shape.end(), own.begin(), own.end());
  t.strides.resize(t.shape.size());
  int64_t step = 1;
  const auto place = [&](size_t d) {
    t.strides[d] = step;
    step *= t.shape[d];
  };
  if (c.channels_last) place(1);
  for (size_t d = t.shape.size() - 1; d >= 2; --d) place(d);
  if (!c.channels_last) place(1);
  place(0);
  return t;
}

ConvolutionGraph graph_of(const Convolution& c) {
  ConvolutionGraph graph{c.direction,
                         tensor_of(c, ConvolutionGraph::kX, c.images, c.channels, c.in),
                         tensor_of(c, ConvolutionGraph::kW, c.outputs, c.group_channels(), c.kernel),
                         tensor_of(c, ConvolutionGraph::kY, c.images, c.outputs, c.out),
                         {spatial(c, c.stride), spatial(c, c.dilation), spatial(c, c.low), {}},
                         c.bias != nullptr,
                         c.act == Act::Relu};
  for (int d = c.rank == kMostSpatial ? 0 : 1; d < kMostSpatial; ++d) {
    // More engines take equal paddings; what is behind the last window does not matter.
    const int64_t beyond = c.low[d] - c.high(d);
    const bool even = beyond >= 0 && beyond < c.stride[d];
    graph.windows.after.push_back(even ? c.low[d] : std::max<int64_t>(c.high(d), 0));
  }
  return graph;
}

Status describe(const Convolution& c, size_t workspace, int device, cudnn::Described* out) {
  AICF_TRY(cudnn::handle_of(device, &out->handle));
  // Of windows of one pixel and a stride the heuristics call an engine without tensor cores the best, which
  // takes five times as long. Of groups with few channels tensor cores multiply zeros, and the heuristics are
  // followed.
  constexpr int64_t kFull = 16;
  const bool full = c.channels >= kFull * c.groups && c.outputs >= kFull * c.groups;
  out->rules = {c.dtype != DType::F32 || c.allow_tf32, full || c.groups == 1, workspace};
  return graph_of(c).describe(out);
}

// All that an engine depends on.
std::string key_of(const Convolution& c, size_t workspace, int device) {
  std::ostringstream key;
  key << "convolution " << device << ' ' << workspace << ' ' << static_cast<int>(c.direction) << ' '
      << static_cast<int>(c.dtype) << c.channels_last << c.allow_tf32 << ' ' << c.rank << ' ' << c.images
      << ' ' << c.channels << ' ' << c.outputs << ' ' << c.groups << ' ' << (c.bias != nullptr)
      << static_cast<int>(c.act);
  for (const int64_t* numbers : {c.in, c.kernel, c.out, c.stride, c.dilation, c.low})
    for (int d = 0; d < kMostSpatial; ++d) key << ' ' << numbers[d];
  return key.str();
}

// What an engine may compute of `c`, the most first: all of it, all but the activation, the sums.
std::vector<Convolution> parts_of(const Convolution& c) {
  std::vector<Convolution> found{c};
  for (const bool with_bias : {true, false}) {
    Convolution part = c;
    part.act = Act::None;
    if (!with_bias) part.bias = nullptr;
    if (part.act != found.back().act || part.bias != found.back().bias) found.push_back(part);
  }
  return found;
}

// The engine computes `part`, and a kernel of ours the rest.
class CudnnLaunch : public LaunchState {
 public:
  CudnnLaunch(const char* id, const Convolution& c, const Convolution& part, cudnn::Object handle,
              cudnn::Engine engine, bool asked)
      : LaunchState(id, engine->name, asked),
        rest_(c),
        ids_(graph_of(part).ids()),
        pointers_{c.x, c.w, c.y, const_cast<void*>(c.bias)},
        handle_(handle),
        engine_(std::move(engine)) {
    pointers_.resize(ids_.size());
    if (part.bias) rest_.bias = nullptr;
    if (part.act == c.act) rest_.act = Act::None;
  }
  Status launch(const LaunchContext& ctx) const override {
    AICF_TRY(cudnn::execute(handle_, *engine_, ids_, pointers_, ctx.workspace, ctx.stream));
    return rest_.has_epilogue() ? convolution_epilogue_cuda(rest_, ctx) : Status::ok();
  }

 private:
  Convolution rest_;
  const std::vector<int64_t> ids_;
  std::vector<void*> pointers_;
  const cudnn::Object handle_;
  const cudnn::Engine engine_;
};

class PlainLaunch : public LaunchState {
 public:
  PlainLaunch(const char* id, const Convolution& c, bool asked) : LaunchState(id, kPlain, asked), c_(c) {}
  Status launch(const LaunchContext& ctx) const override { return convolution_cuda(c_, ctx); }

 private:
  const Convolution c_;
};

}  // namespace

Status prepare_cudnn(const KernelVariant& self, const OpDesc& op, const std::string& asked,
                     LaunchPointer* out) {
  if (!cudnn::available()) return Status::unsupported(std::string(self.name) + " " + cudnn::kMissing);
  const Convolution c = convolution_of(op);
  cudaPointerAttributes memory = {};
  AICF_CUDA_TRY(cudaPointerGetAttributes(&memory, c.result()));
  const CurrentDevice current(memory.device);
  if (asked == kPlain) {
    *out = std::make_shared<PlainLaunch>(self.name, c, true);
    return Status::ok();
  }
  cudnn::Engine engine;
  cudnn::Object handle = nullptr;
  AICF_TRY(cudnn::handle_of(memory.device, &handle));
  const size_t workspace = cudnn_workspace(op);
  const auto find = [&](const Convolution& graph) {
    return cudnn::engine_of(
        key_of(graph, workspace, memory.device), asked,
        [&](cudnn::Described* described) { return describe(graph, workspace, memory.device, described); },
        &engine);
  };
  const std::vector<Convolution> parts = parts_of(c);
  for (const Convolution& part : parts) {
    const Status found = find(part);
    if (found.is_ok())
      *out = std::make_shared<CudnnLaunch>(self.name, c, part, handle, std::move(engine), !asked.empty());
    if (found.is_ok() || (!asked.empty() && &part == &parts.back())) return found;
  }
  *out = std::make_shared<PlainLaunch>(self.name, c, false);
  return Status::ok();
}

Status choices_of_cudnn(const OpDesc& op, std::vector<std::string>* out) {
  if (!cudnn::available()) return Status::unsupported(cudnn::kMissing);
  int device = 0;
  AICF_CUDA_TRY(cudaGetDevice(&device));
  for (const Convolution& graph : parts_of(convolution_of(op))) {
    cudnn::Described described;
    if (out->empty() && describe(graph, cudnn_workspace(op), device, &described).is_ok())
      AICF_TRY(cudnn::list(described.handle, described.graph, described.rules, kMostChoices, out));
  }
  if (out->empty()) out->push_back(kPlain);
  return Status::ok();
}

}  // namespace aicf
