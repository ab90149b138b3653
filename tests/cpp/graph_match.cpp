// Captured graphs beside what was recorded: which are refused, and with which words; and random ones beside a
// search for paths that is written plainly.
#include "runtime/graph_match.h"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace aicf {
namespace {

using Nodes = std::vector<GraphNode>;
using Launches = std::vector<RecordedLaunch>;

void expect(const Status& status, const std::string& message) {
  const std::string got = status.is_ok() ? "" : status.message();
  if (message.empty() ? got.empty() : got.find(message) != std::string::npos) return;
  std::printf("expected '%s', got '%s'\n", message.c_str(), got.c_str());
  std::exit(1);
}

GraphNode kernel(const char* function, size_t launch, std::vector<size_t> after) {
  return {"kernel", function, launch, std::move(after)};
}

// @a and @b are two nodes each, @c waits for both and @d for nothing.
Launches four() { return {{"@a", {}, {}}, {"@b", {}, {"b_0", "b_1"}}, {"@c", {0, 1}, {}}, {"@d", {}, {}}}; }
Nodes right() {
  return {kernel("a_0", 0, {}),  kernel("a_1", 0, {0}),    kernel("b_0", 1, {}),
          kernel("b_1", 1, {2}), kernel("c_0", 2, {1, 3}), kernel("d_0", 3, {2})};
}

void known() {
  expect(match_graph(right(), four()), "");
  expect(match_graph({}, {}), "");
  Nodes nodes = right();
  nodes.push_back({"fill", "", kNoLaunch, {}});
  expect(match_graph(nodes, four()), "no launch has made its fill");
  nodes = right();
  nodes.push_back({"event", "", kNoLaunch, {5}});  // of a library
  expect(match_graph(nodes, four()), "");
  nodes = right();
  nodes[4].after = {1, 2};  // of @b only the first
  expect(match_graph(nodes, four()), "@c may start before @b is complete");
  nodes[4].after = {3};
  expect(match_graph(nodes, four()), "@c may start before @a is complete");
  nodes = right();
  nodes[3].function = "b_2";
  expect(match_graph(nodes, four()), "@b runs b_0, b_2, and is compiled to b_0, b_1");
  nodes = right();
  nodes.erase(nodes.begin() + 3);
  nodes[3].after = {1, 2};
  expect(match_graph(nodes, four()), "@b runs b_0, and is compiled to b_0, b_1");
  Launches launches = four();
  launches[1].functions.clear();
  expect(match_graph(nodes, launches), "");  // whoever does not say what it enqueues may enqueue anything
  launches[1].functions = {"b_0"};
  launches.push_back({"@e", {0, 1, 2, 3}, {}});  // a launch of no elements has no node
  expect(match_graph(nodes, launches), "");
}

bool has_path(const Nodes& nodes, size_t from, size_t to) {
  std::set<size_t> seen;
  std::vector<size_t> pending{to};
  while (!pending.empty()) {
    const size_t node = pending.back();
    pending.pop_back();
    for (const size_t earlier : nodes[node].after) {
      if (earlier == from) return true;
      if (seen.insert(earlier).second) pending.push_back(earlier);
    }
  }
  return false;
}

// Nodes in any order; each waits for some of those that come before it in another.
void by_chance(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const size_t count = 1 + below(150), launches = 1 + below(40);
  Nodes nodes(count);
  std::vector<size_t> order;
  for (size_t i = 0; i < count; ++i) order.insert(order.begin() + static_cast<long>(below(i + 1)), i);
  for (size_t i = 0; i < count; ++i) {
    nodes[order[i]] = kernel("f", below(launches), {});
    for (size_t edges = i ? below(3) : 0; edges > 0; --edges)
      nodes[order[i]].after.push_back(order[below(i)]);
  }
  Launches recorded(launches, RecordedLaunch{"@x", {}, {}});
  const size_t later = below(launches), early = below(launches);
  if (early == later) return;
  recorded[later].after = {early};
  bool holds = true;
  for (size_t i = 0; i < count; ++i)
    for (size_t j = 0; j < count; ++j)
      if (nodes[i].launch == later && nodes[j].launch == early) holds = holds && has_path(nodes, j, i);
  expect(match_graph(nodes, recorded), holds ? "" : "may start before");
}

}  // namespace
}  // namespace aicf

int main() {
  aicf::known();
  for (unsigned seed = 0; seed < 2000; ++seed) aicf::by_chance(seed);
  std::puts("every graph was judged as it should be");
}
