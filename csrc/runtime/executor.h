// Runs a plan: a loop over prepared launches, or one captured graph. No allocation and no text on the way of
// a step.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/graph_match.h"
#include "runtime/prepare.h"
#include "runtime/session.h"

namespace aicf {

struct ExecutorStats {
  int64_t launches_per_step = 0;
  int64_t launches = 0;  // run or replayed so far
  int64_t runs = 0;
  int64_t replays = 0;
  int64_t programmatic_edges = 0;  // of the captured graph; 0 without one
  MemoryStats memory;              // of the device
};

// Where an entry of the batch goes, or the loss comes from.
struct PlaceSpec {
  std::string arena;
  int64_t offset = 0;  // bytes
  int64_t nbytes = 0;
};

// A step that was measured: the launches that were enqueued, named as with `choices` of trace(), and seconds.
struct Timed {
  std::vector<std::string> names;
  std::vector<double> seconds;  // of each launch; or one number, of all together
};

// What a step of several executors shares; `index` is this one's number in it.
struct Member {
  std::shared_ptr<Session> session;  // null for an executor on its own
  int64_t index = 0;
};

// One caller at a time: a concurrent call is refused with Code::State, and so is a call in a forked child.
class Executor {
 public:
  // Addresses of the batch, one per input, each of as many bytes as the input has, on the device or on the
  // host; empty: what was loaded last.
  using Batch = std::vector<const void*>;

  // Refuses what cannot run, naming the launch; see prepare(). `status` is what the checks of the step write.
  static Status create(const std::string& device, ArenaMap arenas, const std::vector<LaunchSpec>& launches,
                       const std::optional<SlotSpec>& status, const std::vector<PlaceSpec>& inputs,
                       const std::optional<PlaceSpec>& loss, Member member, std::unique_ptr<Executor>* out);

  // Copies a batch into the input slots, ordered on `stream`.
  Status load(const Batch& batch, void* stream);
  // Loads `batch` and runs the step once.
  Status run(const Batch& batch, void* stream);
  // Records the step without running it; its launches run on their branches when it is replayed, and one
  // after another where it is run. A short step is recorded several times in a row as well, for replays of
  // many. After a failure nothing is captured and the first error is returned.
  Status capture();
  // Loads `batch`, then `n` captured steps with nothing in between, or fewer where a check fails, unless
  // other processes, which may see that later, wait for all of them. Launches that are `first_step_only` are
  // in the first of them only. `interrupted` is asked about every 50 ms, between two graphs; where it answers
  // true the replay ends there with Code::State, all steps before being whole. The loss of the last one is
  // copied to `loss`, if that is not null.
  Status replay(int64_t n, const Batch& batch, void* stream, bool (*interrupted)(), void* loss = nullptr);
  Status reset();
  // Loads `batch` and runs the step once to be measured: with a mark behind `each` launch, or behind the last
  // alone. Waits for the device. It counts as no run: stats, trace and the active executor stay.
  Status time(bool each, const Batch& batch, void* stream, Timed* out);
  // The nodes of the captured graph of one step, each with the position of its launch. State without one.
  Status graph(std::vector<GraphNode>* out);
  // What the launches enqueued by the last run, or recorded by the capture that was last replayed, call
  // themselves: the kernel ids, or with `choices` the names of their states.
  Status trace(bool choices, std::vector<std::string>* out);
  Status stats(ExecutorStats* out);
  bool captured() const { return first_.graph != nullptr; }
  // The code of the check that has failed, as far as the host can see without waiting; 0 while all is well.
  int64_t failed() const { return status_ ? *status_ : 0; }
  // Steps that the last replay enqueued; on the CPU the last one has failed where failed() is not 0.
  int64_t replayed() const { return replayed_; }

 private:
  using Trace = std::vector<size_t>;  // positions of launches, in the order in which they were enqueued
  class Turn;

  // Some steps as one graph, and the launches in it.
  struct Captured {
    std::unique_ptr<Graph> graph;
    Trace trace;
    int64_t steps = 0;
  };

  using Place = UploadTarget;
  static Status find_place(const PlaceSpec& spec, const ArenaMap& arenas, const char* what, Place* out);

  Executor(Device& device, ArenaMap arenas, std::vector<PreparedLaunch> launches, BranchOrder order,
           const int64_t* status, size_t inputs, std::unique_ptr<Upload> upload, Place loss, Member member);
  // Everything that a step does before its launches; start() makes this executor the active one too.
  Status ready(const Batch& batch, void* stream);
  Status start(const Batch& batch, void* stream);
  void count_steps(int64_t steps);
  Status enqueue_one(const PreparedLaunch& launch, void* stream, void* branch = nullptr);
  // Enqueues the step once; `trace` gets the kernels that were enqueued behind what it has, without
  // allocating where there is room. A `later` step goes without the launches that are `first_step_only`.
  Status enqueue(void* stream, bool later, Trace* trace);
  // The same into the open capture, on the streams of branches.
  Status enqueue_branches(BranchStreams& streams, bool later, Trace* trace);
  // What a plan says of launches that were recorded: of one step or of several, of which each comes behind
  // the one in front of it.
  std::vector<RecordedLaunch> recorded(const Trace& trace) const;
  std::vector<std::string> names_of(const Trace& trace, bool choices) const;
  // Records so many steps as one graph, and holds that against the plan.
  Status record(int64_t steps, bool later, BranchStreams* streams, Captured* out);
  // How many steps are worth a graph of their own; 0: none.
  int64_t many_steps() const;

  Device& device_;
  const ArenaMap arenas_;  // kept alive: the launches hold addresses in them
  const std::vector<PreparedLaunch> launches_;
  const BranchOrder order_;
  const bool has_first_step_only_;  // whether a launch is in the first step of a replay only
  const bool is_of_ranks_;          // whether other processes wait for launches of it
  Captured first_;                  // one whole step
  Captured later_;                  // one step behind another; without a graph where that is the same
  Captured many_;                   // several such steps; without a graph where that is not worth it
  Trace run_trace_;
  const Trace* last_trace_ = &run_trace_;
  const volatile int64_t* const status_;  // the host's copy; null without checks
  const size_t inputs_;                   // how many entries a batch has
  const std::unique_ptr<Upload> upload_;
  const Place loss_;  // no data where the caller has named none
  const Member member_;
  int64_t replayed_ = 0;
  int64_t launched_ = 0;
  int64_t runs_ = 0;
  int64_t replays_ = 0;
  const int fork_generation_;
  std::atomic<bool> busy_{false};
};

}  // namespace aicf
