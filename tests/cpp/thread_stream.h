// A stream of a device as a thread: work in order, at times that only the machine decides.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>
#include <utility>

namespace aicf {

inline void expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("FAILED: %s\n", what);
  std::exit(1);
}

// Set once.
class Flag {
 public:
  void set() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }
  bool wait(std::chrono::milliseconds most = std::chrono::seconds(20)) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, most, [&] { return is_set_; });
  }

 private:
  bool is_set_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
};

class Stream {
 public:
  Stream() : thread_([this] { work(); }) {}
  ~Stream() {
    add(nullptr);
    thread_.join();
  }
  void add(std::function<void()> work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.push(std::move(work));
    changed_.notify_all();
  }
  void synchronize() {
    Flag flag;
    add([&] { flag.set(); });
    expect(flag.wait(), "a stream ends");
  }

 private:
  void work() {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return !queue_.empty(); });
      const std::function<void()> next = std::move(queue_.front());
      queue_.pop();
      lock.unlock();
      if (!next) return;
      next();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::queue<std::function<void()>> queue_;
  std::thread thread_;
};

}  // namespace aicf
