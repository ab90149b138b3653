// What a captured graph consists of, read back when the capture has ended.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace aicf {

constexpr size_t kNoLaunch = ~size_t{0};

struct GraphNode {
  std::string kind;           // "kernel", "copy", "fill", …; on the CPU "call"
  std::string function;       // of a kernel, as the driver names it; of a call, the launch
  size_t launch = kNoLaunch;  // the number of the launch that enqueued it in the capture; kNoLaunch: none did
  std::vector<size_t> after;  // positions of the nodes that must be complete before it starts
};

}  // namespace aicf
