// A graph recorded from single calls (graph_begin … graph_end), with all that it must keep alive.
#pragma once
#include <memory>
#include <vector>

#include "device/buffer.h"

namespace aicf {

// What a recorded graph reads besides its launches: workspaces it owns, and the owners of the tensors it was
// given.
struct Kept {
  std::vector<DeviceBuffer> workspaces;
  std::vector<std::shared_ptr<void>> owners;
};

class RecordedGraph {
 public:
  RecordedGraph(Device& device, std::unique_ptr<Graph> graph, Kept kept)
      : device_(device), kept_(std::move(kept)), graph_(std::move(graph)) {}
  ~RecordedGraph() { (void)reset(); }
  RecordedGraph(const RecordedGraph&) = delete;
  RecordedGraph& operator=(const RecordedGraph&) = delete;
  // `n` launches on `stream` with nothing in between.
  Status launch(int64_t n, void* stream);
  // Frees the graph and what it kept, after the last launch has ended; later launches are refused.
  Status reset();

 private:
  Device& device_;
  Kept kept_;
  std::unique_ptr<Graph> graph_;
  void* last_stream_ = nullptr;
};

// Opens a recording on this thread; calls on the device are recorded until graph_end.
Status graph_begin(Device& device);
Status graph_end(Device& device, std::unique_ptr<RecordedGraph>* out);
// What the open recording of this thread keeps; null when none is open.
Kept* open_recording(const Device& device);

}  // namespace aicf
