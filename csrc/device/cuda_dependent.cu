#include <cstdlib>
#include <string>
#include <vector>

#include "device/cuda_dependent.cuh"
#include "device/cuda_graph_nodes.h"
#include "device/cuda_scope.h"
#include "device/cuda_status.h"

namespace aicf::cuda {
namespace {

constexpr int kFirst = 90;  // the compute capability that knows programmatic edges

// The one node that the next one of a capturing stream depends on; null where there are none or several.
Status only_dependency(cudaStream_t stream, cudaGraphNode_t* out) {
  std::vector<cudaGraphNode_t> front;
  AICF_TRY(dependencies(stream, &front));
  *out = front.size() == 1 ? front[0] : nullptr;
  return Status::ok();
}

}  // namespace

bool wants_programmatic_edges() {
  const char* wanted = std::getenv("AICF_PDL");
  return !wanted || std::string(wanted) != "0";
}

Status allow_programmatic(const LaunchContext& ctx, const void* kernel, cudaLaunchConfig_t* config,
                          cudaLaunchAttribute* attribute) {
  if (!ctx.programmatic) return Status::ok();
  cudaGraphNode_t front = nullptr;
  AICF_TRY(only_dependency(static_cast<cudaStream_t>(ctx.stream), &front));
  if (!front) return Status::ok();
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  AICF_CUDA_TRY(cudaGraphNodeGetType(front, &type));
  if (type != cudaGraphNodeTypeKernel) return Status::ok();
  cudaFuncAttributes compiled = {};
  {
    RelaxedCapture relaxed;  // it may bring the kernel to the device
    AICF_CUDA_TRY(cudaFuncGetAttributes(&compiled, kernel));
  }
  if (compiled.ptxVersion < kFirst) return Status::ok();  // __CUDA_ARCH__ was smaller: there is no wait in it
  attribute->id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute->val.programmaticStreamSerializationAllowed = 1;
  config->attrs = attribute;
  config->numAttrs = 1;
  return Status::ok();
}

Status CaptureTails::is_alone(cudaStream_t stream, bool* out) {
  cudaGraphNode_t front = nullptr;
  AICF_TRY(only_dependency(stream, &front));
  const auto found = last_.find(stream);
  *out = front && found != last_.end() && found->second == front;
  return Status::ok();
}

Status CaptureTails::recorded(cudaStream_t stream) { return only_dependency(stream, &last_[stream]); }

}  // namespace aicf::cuda
