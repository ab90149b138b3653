// The nodes of a graph that is captured from streams, and whose they are.
#pragma once
#include <cuda_runtime.h>

#include <vector>

#include "device/graph_nodes.h"
#include "op/status.h"

namespace aicf::cuda {

// The nodes that the next one of a capturing stream depends on.
Status dependencies(cudaStream_t stream, std::vector<cudaGraphNode_t>* out);

// Follows an open capture: which nodes each launch has made.
class CaptureNodes {
 public:
  void clear() { launches_.clear(); }
  // Around each launch on `stream`, in the order in which they are enqueued.
  Status begins(cudaStream_t stream);
  Status recorded(cudaStream_t stream);
  // The nodes of the graph, by launches, and how many of its edges are programmatic.
  Status read(cudaGraph_t graph, std::vector<GraphNode>* out, size_t* programmatic) const;

 private:
  struct Launch {
    std::vector<cudaGraphNode_t> fronts, ends;  // the dependencies of its stream, before it and behind it
  };
  std::vector<Launch> launches_;
};

}  // namespace aicf::cuda
