#include "runtime/graph_match.h"

#include <cstdint>

namespace aicf {
namespace {

constexpr size_t kBits = 64;

// By which a library tells itself that its work is done: it touches no memory, so it has no order.
bool is_event(const GraphNode& node) { return node.kind == "event"; }

// For each node which others are in front of it, by any path.
class Ancestors {
 public:
  explicit Ancestors(const std::vector<GraphNode>& nodes)
      : words_((nodes.size() + kBits - 1) / kBits), bits_(nodes.size() * words_), known_(nodes.size()) {
    std::vector<size_t> pending;
    for (size_t begin = 0; begin < nodes.size(); ++begin) {
      pending.push_back(begin);
      while (!pending.empty()) {
        const size_t node = pending.back();
        if (known_[node]) {
          pending.pop_back();
          continue;
        }
        const size_t open = pending.size();
        for (const size_t earlier : nodes[node].after)
          if (!known_[earlier]) pending.push_back(earlier);
        if (pending.size() > open) continue;
        for (const size_t earlier : nodes[node].after) add(earlier, node);
        known_[node] = true;
        pending.pop_back();
      }
    }
  }
  bool of(size_t node, size_t other) const {
    return bits_[node * words_ + other / kBits] >> (other % kBits) & 1;
  }

 private:
  void add(size_t earlier, size_t node) {
    for (size_t word = 0; word < words_; ++word)
      bits_[node * words_ + word] |= bits_[earlier * words_ + word];
    bits_[node * words_ + earlier / kBits] |= uint64_t{1} << (earlier % kBits);
  }

  const size_t words_;
  std::vector<uint64_t> bits_;
  std::vector<bool> known_;
};

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "nothing" : text;
}

Status refused(const std::string& why) {
  return Status::capture("the captured graph is not what the plan says: " + why);
}

}  // namespace

Status match_graph(const std::vector<GraphNode>& nodes, const std::vector<RecordedLaunch>& launches) {
  std::vector<std::vector<size_t>> of(launches.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (is_event(nodes[i])) continue;
    if (nodes[i].launch >= launches.size())
      return refused("no launch has made its " + nodes[i].kind + " " + nodes[i].function);
    of[nodes[i].launch].push_back(i);
  }
  const Ancestors ancestors(nodes);
  for (size_t i = 0; i < launches.size(); ++i) {
    const RecordedLaunch& launch = launches[i];
    std::vector<std::string> functions;
    for (const size_t node : of[i]) functions.push_back(nodes[node].function);
    if (!launch.functions.empty() && functions != launch.functions)
      return refused(launch.place + " runs " + listed(functions) + ", and is compiled to " +
                     listed(launch.functions));
    for (const size_t early : launch.after)
      for (const size_t node : of[i])
        for (const size_t other : of[early])
          if (!ancestors.of(node, other))
            return refused(launch.place + " may start before " + launches[early].place + " is complete");
  }
  return Status::ok();
}

}  // namespace aicf
