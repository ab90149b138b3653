// Branches of a captured graph: launches on several streams, in an order that events make. Which waits for
// which is decided here, for any device; a device offers the streams and the events.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "op/status.h"

namespace aicf {

constexpr size_t kMostBranches = 16;  // of a plan: each is a stream

// The streams of a capture and the events between them. All of it is there before a capture begins.
class BranchStreams {
 public:
  virtual ~BranchStreams() = default;
  // Of branch 0 the one that the capture was begun on.
  virtual void* stream(size_t branch) = 0;
  // `event` is when all that was enqueued on the branch before is complete. Each may be recorded once in a
  // capture, and again in the next.
  virtual Status record(size_t event, size_t branch) = 0;
  virtual Status wait(size_t event, size_t branch) = 0;
};

// Where a launch is, and the positions of those that must be complete before it starts.
struct Branched {
  size_t branch = 0;
  std::vector<size_t> after;
};

// The order of a step with branches: made once, walked at each capture.
class BranchOrder {
 public:
  // Launches in the order of the plan, in which each waits only for earlier ones.
  static Status create(const std::vector<Branched>& launches, BranchOrder* out);

  bool branched() const { return branches_ > 1; }
  size_t branches() const { return branches_; }
  size_t events() const { return events_; }

  // Calls `launch(position, stream)` for each, in the order of the plan, with what must be waited for
  // enqueued before. In the end, and after the first error, which is returned, branch 0 waits for all others:
  // nothing that was forked from it stays unjoined.
  Status walk(BranchStreams& streams, const std::function<Status(size_t, void*)>& launch) const;

 private:
  static constexpr size_t kNone = ~size_t{0};
  struct Step {
    size_t branch;
    std::vector<size_t> waits;  // events
    size_t recorded;            // the event behind it, or kNone
  };

  Status walk_steps(BranchStreams& streams, const std::function<Status(size_t, void*)>& launch,
                    std::vector<char>* forked) const;
  size_t join_event(size_t branch) const { return branch; }  // event 0 is the fork

  std::vector<Step> steps_;
  size_t branches_ = 1;
  size_t events_ = 0;
};

}  // namespace aicf
