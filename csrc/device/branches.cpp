#include "device/branches.h"

#include <algorithm>
#include <string>

namespace aicf {
namespace {

constexpr size_t kFork = 0;  // the event on branch 0 before the first launch

// How many launches, from the first of the plan on, a branch knows to be complete on each of the branches.
using Known = std::vector<size_t>;

void learn(const Known& from, Known* to) {
  for (size_t branch = 0; branch < to->size(); ++branch)
    (*to)[branch] = std::max((*to)[branch], from[branch]);
}

}  // namespace

Status BranchOrder::create(const std::vector<Branched>& launches, BranchOrder* out) {
  BranchOrder order;
  for (size_t i = 0; i < launches.size(); ++i) {
    const Branched& launch = launches[i];
    if (launch.branch >= kMostBranches)
      return Status::invalid("launch " + std::to_string(i) + " is on branch " +
                             std::to_string(launch.branch) + "; a plan has at most " +
                             std::to_string(kMostBranches) + ", numbered from 0");
    for (const size_t early : launch.after)
      if (early >= i)
        return Status::invalid("launch " + std::to_string(i) + " waits for launch " + std::to_string(early) +
                               ", which is no earlier one");
    order.branches_ = std::max(order.branches_, launch.branch + 1);
  }
  order.events_ = order.branches_;  // the fork, and the join of each other branch
  // What a branch knows now; what was known behind each launch.
  std::vector<Known> now(order.branches_, Known(order.branches_, 0)), behind;
  std::vector<char> begun(order.branches_, 0);
  begun[0] = 1;
  for (size_t i = 0; i < launches.size(); ++i) {
    const size_t branch = launches[i].branch;
    Step step{branch, {}, kNone};
    // The latest first: what it has waited for itself needs no wait of its own.
    std::vector<size_t> after = launches[i].after;
    std::sort(after.rbegin(), after.rend());
    for (const size_t early : after) {
      const size_t other = launches[early].branch;
      if (other == branch || now[branch][other] > early) continue;
      size_t& event = order.steps_[early].recorded;
      if (event == kNone) event = order.events_++;
      step.waits.push_back(event);
      learn(behind[early], &now[branch]);
      begun[branch] = 1;  // its stream takes part in the capture from then on
    }
    if (!begun[branch]) step.waits.push_back(kFork);
    begun[branch] = 1;
    now[branch][branch] = i + 1;
    behind.push_back(now[branch]);
    order.steps_.push_back(std::move(step));
  }
  *out = std::move(order);
  return Status::ok();
}

Status BranchOrder::walk(BranchStreams& streams, const std::function<Status(size_t, void*)>& launch) const {
  std::vector<char> forked(branches_, 0);
  Status status = walk_steps(streams, launch, &forked);
  for (size_t branch = 1; branch < branches_; ++branch) {
    if (!forked[branch]) continue;
    Status joined = streams.record(join_event(branch), branch);
    if (joined.is_ok()) joined = streams.wait(join_event(branch), 0);
    if (status.is_ok()) status = joined;
  }
  return status;
}

Status BranchOrder::walk_steps(BranchStreams& streams, const std::function<Status(size_t, void*)>& launch,
                               std::vector<char>* forked) const {
  if (branched()) AICF_TRY(streams.record(kFork, 0));
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    for (const size_t event : step.waits) {
      AICF_TRY(streams.wait(event, step.branch));
      (*forked)[step.branch] = 1;
    }
    AICF_TRY(launch(i, streams.stream(step.branch)));
    if (step.recorded != kNone) AICF_TRY(streams.record(step.recorded, step.branch));
  }
  return Status::ok();
}

}  // namespace aicf
