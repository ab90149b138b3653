#include <cuda.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <unordered_map>

#include "device/cuda_graph_nodes.h"
#include "device/cuda_status.h"

namespace aicf::cuda {
namespace {

constexpr int kDriver = 12030;  // the first that tells the name of a function

// A function of the driver, which this module is not linked with; null where the driver lacks it.
template <class Function>
Function driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kDriver, cudaEnableDefault, &result);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Function>(found)
                                                                       : nullptr;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 ? text.get() : name;
}

// The name of a kernel node's function; empty where the driver does not tell it.
std::string function_of(cudaGraphNode_t node) {
  static const auto params_of = driver<decltype(&cuGraphKernelNodeGetParams)>("cuGraphKernelNodeGetParams");
  static const auto of_function = driver<decltype(&cuFuncGetName)>("cuFuncGetName");
  static const auto of_kernel = driver<decltype(&cuKernelGetName)>("cuKernelGetName");
  CUDA_KERNEL_NODE_PARAMS params = {};
  const char* name = nullptr;
  if (!params_of || params_of(node, &params) != CUDA_SUCCESS) return "";
  if (params.func && of_function && of_function(&name, params.func) == CUDA_SUCCESS) return demangled(name);
  if (params.kern && of_kernel && of_kernel(&name, params.kern) == CUDA_SUCCESS) return demangled(name);
  return "";
}

Status describe(cudaGraphNode_t node, GraphNode* out) {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  AICF_CUDA_TRY(cudaGraphNodeGetType(node, &type));
  switch (type) {
    case cudaGraphNodeTypeKernel:
      out->kind = "kernel";
      out->function = function_of(node);
      break;
    case cudaGraphNodeTypeMemcpy:
      out->kind = "copy";
      break;
    case cudaGraphNodeTypeMemset:
      out->kind = "fill";
      break;
    case cudaGraphNodeTypeHost:
      out->kind = "host";
      break;
    case cudaGraphNodeTypeEmpty:
      out->kind = "empty";
      break;
    case cudaGraphNodeTypeEventRecord:
    case cudaGraphNodeTypeWaitEvent:
      out->kind = "event";
      break;
    default:
      out->kind = "other";
  }
  return Status::ok();
}

struct Edges {
  std::vector<cudaGraphNode_t> from, to;
  std::vector<cudaGraphEdgeData> data;
};

Status edges_of(cudaGraph_t graph, Edges* out) {
#if CUDART_VERSION >= 13000
  const auto get = cudaGraphGetEdges;
#else
  const auto get = cudaGraphGetEdges_v2;
#endif
  size_t count = 0;
  AICF_CUDA_TRY(get(graph, nullptr, nullptr, nullptr, &count));
  *out = {std::vector<cudaGraphNode_t>(count), std::vector<cudaGraphNode_t>(count),
          std::vector<cudaGraphEdgeData>(count)};
  if (count) AICF_CUDA_TRY(get(graph, out->from.data(), out->to.data(), out->data.data(), &count));
  return Status::ok();
}

}  // namespace

Status dependencies(cudaStream_t stream, std::vector<cudaGraphNode_t>* out) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;  // without them CUDA refuses where one is not of the usual kind
  size_t count = 0;
#if CUDART_VERSION >= 13000
  AICF_CUDA_TRY(cudaStreamGetCaptureInfo(stream, &capture, nullptr, nullptr, &nodes, &edges, &count));
#else
  AICF_CUDA_TRY(cudaStreamGetCaptureInfo_v3(stream, &capture, nullptr, nullptr, &nodes, &edges, &count));
#endif
  out->clear();
  if (capture == cudaStreamCaptureStatusActive) out->assign(nodes, nodes + count);
  return Status::ok();
}

Status CaptureNodes::begins(cudaStream_t stream) {
  launches_.emplace_back();
  return dependencies(stream, &launches_.back().fronts);
}

Status CaptureNodes::recorded(cudaStream_t stream) { return dependencies(stream, &launches_.back().ends); }

// A launch has made what leads to the ends of its stream behind it, from the ends before it on.
Status CaptureNodes::read(cudaGraph_t graph, std::vector<GraphNode>* out, size_t* programmatic) const {
  size_t count = 0;
  AICF_CUDA_TRY(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  if (count) AICF_CUDA_TRY(cudaGraphGetNodes(graph, nodes.data(), &count));
  Edges edges;
  AICF_TRY(edges_of(graph, &edges));

  std::unordered_map<cudaGraphNode_t, std::vector<cudaGraphNode_t>> before;
  for (size_t i = 0; i < edges.from.size(); ++i) before[edges.to[i]].push_back(edges.from[i]);
  std::unordered_map<cudaGraphNode_t, size_t> owner;
  std::vector<cudaGraphNode_t> ordered;
  for (size_t launch = 0; launch < launches_.size(); ++launch) {
    const std::vector<cudaGraphNode_t>& fronts = launches_[launch].fronts;
    const size_t first = ordered.size();
    std::vector<cudaGraphNode_t> pending = launches_[launch].ends;
    while (!pending.empty()) {
      const cudaGraphNode_t node = pending.back();
      pending.pop_back();
      if (std::find(fronts.begin(), fronts.end(), node) != fronts.end()) continue;
      if (!owner.emplace(node, launch).second) continue;
      ordered.push_back(node);
      const std::vector<cudaGraphNode_t>& earlier = before[node];
      pending.insert(pending.end(), earlier.begin(), earlier.end());
    }
    std::reverse(ordered.begin() + static_cast<std::ptrdiff_t>(first), ordered.end());
  }
  for (const cudaGraphNode_t node : nodes)
    if (owner.emplace(node, kNoLaunch).second) ordered.push_back(node);

  std::unordered_map<cudaGraphNode_t, size_t> position;
  for (size_t i = 0; i < ordered.size(); ++i) position[ordered[i]] = i;
  out->assign(ordered.size(), GraphNode{});
  for (size_t i = 0; i < ordered.size(); ++i) {
    GraphNode& node = (*out)[i];
    AICF_TRY(describe(ordered[i], &node));
    node.launch = owner[ordered[i]];
    for (const cudaGraphNode_t earlier : before[ordered[i]]) node.after.push_back(position[earlier]);
  }
  *programmatic = 0;
  for (const cudaGraphEdgeData& edge : edges.data)
    *programmatic += edge.type == cudaGraphDependencyTypeProgrammatic;
  return Status::ok();
}

}  // namespace aicf::cuda
