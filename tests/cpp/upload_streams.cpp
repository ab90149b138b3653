// The double buffer of uploads over streams that are threads: what a GPU does at times of its own, done here
// at random times, and at the worst.
//
// Each batch is written over as soon as load() has returned. A step looks at its inputs twice, as slowly as
// it can; each number in them says of which batch it is.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "device/upload.h"
#include "thread_stream.h"

namespace aicf {
namespace {

using namespace std::chrono_literals;

// How often it was asked for, and how often that has been reached on its stream.
class Mark {
 public:
  int64_t next() { return ++asked_; }
  int64_t asked() const { return asked_; }
  void make(int64_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    made_ = number;
    changed_.notify_all();
  }
  void wait(int64_t number) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return made_ >= number; });
  }

 private:
  std::atomic<int64_t> asked_{0};
  int64_t made_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

// How long a copy takes: nothing, or so long that everything else goes first.
struct Delays {
  std::atomic<int> copies{0}, steps{0};  // microseconds at most
  void pass(int most) {
    if (most) std::this_thread::sleep_for(std::chrono::microseconds(std::rand() % most));
  }
};

struct Failure {
  int sends_left = -1;            // the send that fails; -1 for none
  std::atomic<int> under_way{0};  // copies that were sent and have not ended
};

class ThreadLane final : public UploadLane {
 public:
  ThreadLane(Stream& copies, Delays& delays, const Source& kind, Failure& failure)
      : copies_(copies), delays_(delays), kind_(kind), failure_(failure) {}
  ~ThreadLane() override {
    copies_.synchronize();
    std::free(pinned_);
    std::free(staging_);
  }
  Status where(const void*, size_t bytes, Source* out) override {
    *out = bytes <= 8 ? Source::Direct : kind_;
    return Status::ok();
  }
  Status allocate_pinned(size_t bytes, char** out) override {
    *out = pinned_ = static_cast<char*>(std::malloc(bytes));
    return Status::ok();
  }
  Status allocate_staging(size_t bytes, char** out) override {
    *out = staging_ = static_cast<char*>(std::malloc(bytes));
    return Status::ok();
  }
  Status wait_taken(int set) override {
    copies_.add([mark = &taken_[set], number = taken_[set].asked()] { mark->wait(number); });
    return Status::ok();
  }
  Status send(void* staging, const void* host, size_t bytes) override {
    if (failure_.sends_left >= 0 && failure_.sends_left-- == 0) return Status::device("the copy failed");
    ++failure_.under_way;
    copies_.add([=] {
      delays_.pass(delays_.copies);
      std::memcpy(staging, host, bytes);
      --failure_.under_way;
    });
    return Status::ok();
  }
  Status mark_sent(int set) override {
    copies_.add([mark = &sent_[set], number = sent_[set].next()] { mark->make(number); });
    return Status::ok();
  }
  Status wait_sent(int set, void* stream) override {
    static_cast<Stream*>(stream)->add(
        [mark = &sent_[set], number = sent_[set].asked()] { mark->wait(number); });
    return Status::ok();
  }
  Status take(void* target, const void* source, size_t bytes, void* stream) override {
    if (bytes <= 8) {  // of the host: it travels with the call
      uint64_t word = 0;
      std::memcpy(&word, source, bytes);
      static_cast<Stream*>(stream)->add([=] { std::memcpy(target, &word, bytes); });
      return Status::ok();
    }
    static_cast<Stream*>(stream)->add([=] {
      delays_.pass(delays_.steps);
      std::memcpy(target, source, bytes);
    });
    return Status::ok();
  }
  Status mark_taken(int set, void* stream) override {
    static_cast<Stream*>(stream)->add(
        [mark = &taken_[set], number = taken_[set].next()] { mark->make(number); });
    return Status::ok();
  }
  Status finish_sent(int set) override {
    sent_[set].wait(sent_[set].asked());
    return Status::ok();
  }
  Status finish() override {
    copies_.synchronize();
    return Status::ok();
  }

 private:
  Stream& copies_;
  Delays& delays_;
  const Source& kind_;
  Failure& failure_;
  Mark sent_[kSets], taken_[kSets];
  char *pinned_ = nullptr, *staging_ = nullptr;
};

// A step with three inputs: one of some pieces, one small, one of one word that travels with the call.
struct Step {
  static constexpr size_t kLarge = (size_t{4} << 20) * 2 / 8 + 77, kSmall = 33;

  explicit Step(Source kind) : kind(kind) {}

  void load(uint64_t number, bool expected = true) {
    std::fill(large.begin(), large.end(), number);
    std::fill(small.begin(), small.end(), number);
    word = number;
    const Status status = upload.load({large.data(), small.data(), &word}, &steps);
    std::fill(large.begin(), large.end(), ~uint64_t{0});  // the caller's again
    std::fill(small.begin(), small.end(), ~uint64_t{0});
    word = ~uint64_t{0};
    expect(status.is_ok() == expected, "the load");
  }
  void run(uint64_t number) {
    steps.add([this, number] {
      for (int look = 0; look < 2; ++look) {
        for (const uint64_t value : large_in) expect(value == number, "a step has its own large input");
        for (const uint64_t value : small_in) expect(value == number, "a step has its own small input");
        expect(word_in == number, "a step has its own word");
        delays.pass(delays.steps);
      }
      ++done;
    });
  }

  Source kind;
  Failure failure;
  Delays delays;
  Stream copies, steps;
  std::vector<uint64_t> large = std::vector<uint64_t>(kLarge), small = std::vector<uint64_t>(kSmall);
  std::vector<uint64_t> large_in = large, small_in = small;
  uint64_t word = 0, word_in = 0;
  std::atomic<uint64_t> done{0};
  StagedUpload upload{
      std::make_unique<ThreadLane>(copies, delays, kind, failure),
      {{large_in.data(), kLarge * 8}, {small_in.data(), kSmall * 8}, {&word_in, 8}},
  };
};

void every_step_has_its_own_batch(Source first, int copies, int steps) {
  Step step(first);
  step.delays.copies = copies;
  step.delays.steps = steps;
  for (uint64_t number = 1; number <= 20; ++number) {
    if (number % 7 == 0) step.kind = step.kind == Source::Pinned ? Source::Pageable : Source::Pinned;
    step.load(number);
    step.run(number);
    if (number % 5 == 0) step.run(number);  // once more, with what was loaded last
    if (number % 11 == 0) step.steps.synchronize();
  }
  step.steps.synchronize();
  expect(step.done == 24, "all steps ran");
}

void batches_travel_while_a_step_runs() {
  Step step(Source::Pageable);
  step.load(0);
  step.run(0);
  step.steps.synchronize();
  Mark gate;
  step.steps.add([&] { gate.wait(1); });  // a step that does not end
  std::atomic<uint64_t> returned{0};
  std::thread host([&] {
    for (uint64_t number = 1; number <= 5; ++number) {
      step.load(number);
      step.run(number);
      returned = number;
    }
  });
  for (int wait = 0; returned < 4 && wait < 2000; ++wait) std::this_thread::sleep_for(10ms);
  expect(returned == 4 && step.done == 1, "four calls return while a step runs");
  std::this_thread::sleep_for(50ms);
  expect(returned == 4, "the host is four batches ahead at most");
  gate.make(1);
  host.join();
  step.steps.synchronize();
  expect(step.done == 6, "all steps ran");
}

void a_failed_load_leaves_nothing_on_the_way() {
  for (int sends = 0; sends < 4; ++sends) {
    for (const Source kind : {Source::Pageable, Source::Pinned}) {
      Step step(kind);
      step.delays.copies = 3000;
      step.load(1);
      step.run(1);
      step.failure.sends_left = kind == Source::Pinned ? sends % 2 : sends;
      step.load(2, false);
      expect(step.failure.under_way == 0, "no copy reads or writes any more");
      for (uint64_t number = 3; number < 8; ++number) {
        step.load(number);
        step.run(number);
      }
      step.steps.synchronize();
      expect(step.done == 6, "the steps before and behind it ran");
    }
  }
}

}  // namespace
}  // namespace aicf

int main() {
  using namespace aicf;
  for (const Source kind : {Source::Pageable, Source::Pinned})
    for (const int copies : {0, 4000})
      for (const int steps : {0, 4000}) every_step_has_its_own_batch(kind, copies, steps);
  batches_travel_while_a_step_runs();
  a_failed_load_leaves_nothing_on_the_way();
  std::printf("every step had its own batch\n");
}
