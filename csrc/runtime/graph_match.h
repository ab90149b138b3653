// Whether a captured graph is what a plan says: read back, and held against the launches that were recorded.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "device/graph_nodes.h"
#include "op/status.h"

namespace aicf {

// A launch as it was recorded.
struct RecordedLaunch {
  std::string place;                   // for errors
  std::vector<size_t> after;           // numbers of recorded launches that must be complete before it starts
  std::vector<std::string> functions;  // that it enqueues, in order; nothing where they are not known
};

// Refuses a graph that has a node which no launch has made, one of other functions than its launch has, or a
// launch that may start before one that must be complete: the graph has no path from each of its nodes.
Status match_graph(const std::vector<GraphNode>& nodes, const std::vector<RecordedLaunch>& launches);

}  // namespace aicf
