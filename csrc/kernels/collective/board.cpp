// As in mailbox.cu, slots of two rounds are apart, and a rank begins a round only after it has read what came
// in the round before. So no slot is written before it has been read, and a round needs one way.
#include "kernels/collective/board.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace aicf {
namespace {

constexpr size_t kSlot = size_t{1} << 16;                 // bytes of a rank and a round
constexpr int kSpins = 2000;                              // before the processor is given to others
constexpr auto kPatience = std::chrono::milliseconds(2);  // before this thread sleeps
constexpr auto kSleep = std::chrono::microseconds(100);

using Clock = std::chrono::steady_clock;

}  // namespace

// What the others see of a rank, on cache lines of its own.
struct alignas(128) Board::Row {
  std::atomic<uint64_t> round;
  std::atomic<uint32_t> left;
  uint64_t parts[2];  // bytes given in a round, as slots
};

size_t Board::bytes(int ranks) { return static_cast<size_t>(ranks) * (sizeof(Row) + 2 * kSlot); }

Board::~Board() {
  if (memory_) (void)munmap(memory_, bytes(ranks()));
}

Board::Row& Board::row(int rank) const { return reinterpret_cast<Row*>(memory_)[rank]; }

char* Board::slot(int rank, uint64_t round) const {
  return memory_ + static_cast<size_t>(ranks()) * sizeof(Row) +
         (static_cast<size_t>(rank) * 2 + round % 2) * kSlot;
}

Status Board::open(const std::string& path, int rank, std::vector<int> processes,
                   std::unique_ptr<Board>* out) {
  const auto ranks = static_cast<int>(processes.size());
  if (rank < 0 || rank >= ranks)
    return Status::invalid("expected a rank of 0 to " + std::to_string(ranks - 1) + ", got " +
                           std::to_string(rank));
  std::unique_ptr<Board> board(new Board(rank, std::move(processes)));
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  void* memory =
      file < 0 ? MAP_FAILED : mmap(nullptr, bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int error = errno;
  if (file >= 0) (void)close(file);
  if (memory == MAP_FAILED) return Status::unsupported("cannot share " + path + ": " + std::strerror(error));
  board->memory_ = static_cast<char*>(memory);
  *out = std::move(board);
  return Status::ok();
}

Status Board::exchange(const void* from, void* to, size_t part, double seconds) {
  const std::lock_guard<std::mutex> turn(turn_);
  if (is_lost_) return Status::state("an exchange before this one has failed");
  Row& mine = row(rank_);
  Status status = Status::ok();
  size_t done = 0;
  do {  // of no bytes there is a round too: all have come
    const size_t some = std::min(kSlot, part - done);
    const uint64_t round = ++round_;
    if (some) std::memcpy(slot(rank_, round), static_cast<const char*>(from) + done, some);
    mine.parts[round % 2] = part;
    mine.round.store(round, std::memory_order_release);
    for (int rank = 0; rank < ranks() && status.is_ok(); ++rank) {
      status = wait_for(rank, round, seconds);
      if (!status.is_ok()) break;
      if (const size_t theirs = row(rank).parts[round % 2]; theirs != part)
        status = Status::state("rank " + std::to_string(rank_) + " gives " + std::to_string(part) +
                               " bytes, rank " + std::to_string(rank) + " gives " + std::to_string(theirs));
      else if (some)
        std::memcpy(static_cast<char*>(to) + static_cast<size_t>(rank) * part + done, slot(rank, round),
                    some);
    }
    done += some;
  } while (status.is_ok() && done < part);
  if (!status.is_ok()) {
    is_lost_ = true;
    mine.left.store(1, std::memory_order_release);
  }
  return status;
}

Status Board::wait_for(int rank, uint64_t round, double seconds) const {
  const Row& theirs = row(rank);
  const auto has_come = [&] { return theirs.round.load(std::memory_order_acquire) >= round; };
  for (int spins = 0; spins < kSpins; ++spins)
    if (has_come()) return Status::ok();
  const Clock::time_point begun = Clock::now();
  const auto limit = std::chrono::duration<double>(seconds);
  while (!has_come()) {
    const auto waited = Clock::now() - begun;
    if (waited < kPatience) {
      (void)sched_yield();
      continue;
    }
    pollfd process{processes_[static_cast<size_t>(rank)], POLLIN, 0};
    const bool left = theirs.left.load(std::memory_order_acquire) != 0;
    if (left || (rank != rank_ && poll(&process, 1, 0) > 0)) {
      if (has_come()) break;  // before it ended
      return Status::state("rank " + std::to_string(rank) + (left ? " has left" : " has ended"));
    }
    if (waited > limit) return Status::state("rank " + std::to_string(rank) + " has not come in time");
    std::this_thread::sleep_for(kSleep);
  }
  return Status::ok();
}

}  // namespace aicf
