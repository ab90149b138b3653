// The branches of a capture over streams that are threads, which take as long as chance says.
//
// Random steps are walked: no launch may start before all that it must wait for, everything must be joined in
// the end, and the rules of a capture hold: a stream takes part in it once it has waited for an event of it.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "device/branches.h"
#include "thread_stream.h"

namespace aicf {
namespace {

using namespace std::chrono_literals;

// One capture. The call `fails_at` of record() and wait() fails; none does where it is negative.
class ThreadStreams final : public BranchStreams {
 public:
  ThreadStreams(std::vector<Stream>& streams, const BranchOrder& order, int fails_at = -1)
      : streams_(streams), events_(order.events()), recorded_(order.events()), fails_at_(fails_at) {
    expect(order.branches() <= streams.size(), "as many streams as there are branches");
    takes_part_.assign(streams.size(), false);
    takes_part_[0] = true;
  }
  void* stream(size_t branch) override {
    expect(takes_part_[branch], "a launch is on a stream of the capture");
    return &streams_[branch];
  }
  Status record(size_t event, size_t branch) override {
    if (calls++ == fails_at_) return Status::device("the record failed");
    expect(event < events_.size() && !recorded_[event], "an event is recorded once");
    expect(takes_part_[branch], "an event is of a stream of the capture");
    recorded_[event] = true;
    streams_[branch].add([flag = &events_[event]] { flag->set(); });
    return Status::ok();
  }
  Status wait(size_t event, size_t branch) override {
    if (calls++ == fails_at_) return Status::device("the wait failed");
    expect(event < events_.size() && recorded_[event], "an event is recorded before it is waited for");
    takes_part_[branch] = true;
    streams_[branch].add([flag = &events_[event]] { expect(flag->wait(), "an event is reached"); });
    ++waits;
    return Status::ok();
  }
  // Whether every event could be recorded and waited for.
  bool holds() const { return fails_at_ < 0 || calls <= fails_at_; }

  int calls = 0, waits = 0;

 private:
  std::vector<Stream>& streams_;
  std::vector<Flag> events_;
  std::vector<bool> recorded_, takes_part_;
  const int fails_at_;
};

using Random = std::mt19937;
size_t below(Random& random, size_t end) { return random() % end; }

std::vector<Branched> random_step(Random& random, size_t branches) {
  std::vector<Branched> launches(below(random, 40));
  for (size_t i = 0; i < launches.size(); ++i) {
    launches[i].branch = below(random, 3) ? below(random, branches) : 0;
    for (size_t wanted = i ? below(random, 4) : 0; wanted; --wanted)
      launches[i].after.push_back(below(random, i));
  }
  return launches;
}

BranchOrder order_of(const std::vector<Branched>& launches) {
  BranchOrder order;
  expect(BranchOrder::create(launches, &order).is_ok(), "the order of a step");
  return order;
}

// Walks a step. Launch `fails` fails to be enqueued. Returns whether the walk succeeded.
bool walk(const std::vector<Branched>& launches, std::vector<Stream>& streams, ThreadStreams& capture,
          size_t fails, unsigned seed) {
  std::vector<std::atomic<bool>> done(launches.size());
  std::vector<size_t> enqueued;
  const Status status = order_of(launches).walk(capture, [&](size_t i, void* stream) {
    if (i == fails) return Status::device("the launch failed");
    expect(stream == &streams[launches[i].branch], "a launch is on its branch");
    expect(i == enqueued.size(), "launches come in order");
    enqueued.push_back(i);
    const int delay = static_cast<int>((seed + i * 7919) % 5) * 100;
    streams[launches[i].branch].add([&, i, delay] {
      for (const size_t early : launches[i].after)
        expect(done[early], "no launch runs before what it must wait for");
      if (delay) std::this_thread::sleep_for(std::chrono::microseconds(delay));
      done[i] = true;
    });
    return Status::ok();
  });
  if (capture.holds()) {
    streams[0].synchronize();
    for (const size_t i : enqueued) expect(done[i], "all branches are joined to the first");
  }
  for (Stream& stream : streams) stream.synchronize();
  if (fails < launches.size())
    expect(status.message() == "the launch failed", "the first error is the one that is told");
  return status.is_ok();
}

void random_steps_keep_their_order() {
  Random random(1);
  std::vector<Stream> streams(5);
  constexpr size_t kNever = ~size_t{0};
  for (unsigned seed = 0; seed < 150; ++seed) {
    const std::vector<Branched> launches = random_step(random, 1 + seed % streams.size());
    const BranchOrder order = order_of(launches);
    ThreadStreams capture(streams, order);
    expect(walk(launches, streams, capture, kNever, seed), "a walk succeeds");
    if (launches.empty()) continue;
    ThreadStreams failing(streams, order);
    expect(!walk(launches, streams, failing, below(random, launches.size()), seed), "a launch fails");
    if (!capture.calls) continue;
    const int at = static_cast<int>(below(random, static_cast<size_t>(capture.calls)));
    ThreadStreams broken(streams, order, at);
    expect(!walk(launches, streams, broken, kNever, seed), "an event fails");
  }
}

void independent_launches_run_at_the_same_time() {
  const std::vector<Branched> launches = {{0, {}}, {0, {0}}, {1, {0}}, {2, {}}, {0, {1, 2, 3}}};
  const BranchOrder order = order_of(launches);
  std::vector<Stream> streams(3);
  ThreadStreams capture(streams, order);
  Flag there[3], all;
  const Status status = order.walk(capture, [&](size_t i, void* stream) {
    if (i < 1 || i > 3) return Status::ok();
    static_cast<Stream*>(stream)->add([&, i] {
      there[i - 1].set();
      for (Flag& other : there) expect(other.wait(), "each of three launches sees the others run");
    });
    return Status::ok();
  });
  expect(status.is_ok(), "the walk");
  streams[0].synchronize();
}

void what_is_known_is_not_waited_for() {
  // 2 is behind 0 by 1; 4 is behind 1 by 3, on whose branch it is.
  const std::vector<Branched> launches = {{0, {}}, {1, {0}}, {1, {0, 1}}, {0, {2, 1}}, {0, {1, 3}}};
  const BranchOrder order = order_of(launches);
  std::vector<Stream> streams(2);
  ThreadStreams capture(streams, order);
  expect(walk(launches, streams, capture, ~size_t{0}, 0), "the walk");
  const int joins = 1;
  expect(capture.waits == 2 + joins, "one wait to the branch, one back, and the join");
}

void one_branch_needs_nothing() {
  const BranchOrder order = order_of({{0, {}}, {0, {0}}});
  std::vector<Stream> streams(1);
  ThreadStreams capture(streams, order);
  expect(!order.branched(), "one branch");
  expect(walk({{0, {}}, {0, {0}}}, streams, capture, ~size_t{0}, 0), "the walk");
  expect(capture.calls == 0, "one branch needs no event");
}

void nonsense_is_refused() {
  BranchOrder order;
  Status status = BranchOrder::create({{0, {}}, {0, {1}}}, &order);
  expect(status.message() == "launch 1 waits for launch 1, which is no earlier one", "a wait for itself");
  status = BranchOrder::create({{16, {}}}, &order);
  expect(status.message() == "launch 0 is on branch 16; a plan has at most 16, numbered from 0", "a branch");
}

}  // namespace
}  // namespace aicf

int main() {
  using namespace aicf;
  random_steps_keep_their_order();
  independent_launches_run_at_the_same_time();
  what_is_known_is_not_waited_for();
  one_branch_needs_nothing();
  nonsense_is_refused();
  std::printf("every launch waited for what it must\n");
}
