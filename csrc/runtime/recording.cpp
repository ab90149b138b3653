#include "runtime/recording.h"

#include <map>

namespace aicf {
namespace {

thread_local std::map<const Device*, Kept> recordings;

}  // namespace

Status RecordedGraph::launch(int64_t n, void* stream) {
  if (!graph_) return Status::state("this graph was reset; record it again with graph_begin and graph_end");
  if (n < 0) return Status::invalid("a graph is launched 0 or more times, got " + std::to_string(n));
  if (open_recording(device_))
    return Status::state("a graph cannot be launched while one is being recorded; call graph_end first");
  last_stream_ = stream;
  for (int64_t i = 0; i < n; ++i) AICF_TRY(graph_->launch(stream));
  return Status::ok();
}

Status RecordedGraph::reset() {
  if (graph_) AICF_TRY(device_.synchronize(last_stream_));
  graph_.reset();
  kept_ = Kept{};
  return Status::ok();
}

Status graph_begin(Device& device) {
  AICF_TRY(device.begin_capture());
  recordings[&device] = Kept{};
  return Status::ok();
}

Status graph_end(Device& device, std::unique_ptr<RecordedGraph>* out) {
  const auto open = recordings.find(&device);
  if (open == recordings.end())
    return Status::state("no graph is being recorded on this thread; call graph_begin first");
  Kept kept = std::move(open->second);
  recordings.erase(open);
  std::unique_ptr<Graph> graph;
  AICF_TRY(device.end_capture(&graph));
  *out = std::make_unique<RecordedGraph>(device, std::move(graph), std::move(kept));
  return Status::ok();
}

Kept* open_recording(const Device& device) {
  const auto open = recordings.find(&device);
  return open == recordings.end() ? nullptr : &open->second;
}

}  // namespace aicf
