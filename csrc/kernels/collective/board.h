// Memory that the processes of one host share, through which they exchange bytes: each writes what it gives,
// raises the number of the round, and reads what the others have written once they have done the same.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "op/status.h"

namespace aicf {

class Board {
 public:
  // All ranks open the same file of zeros, which one of them has made and may remove afterwards. `processes`:
  // by rank a descriptor that is readable once the process has ended; the own one is not looked at.
  static Status open(const std::string& path, int rank, std::vector<int> processes,
                     std::unique_ptr<Board>* out);
  // The size of the file.
  static size_t bytes(int ranks);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // `part` bytes of every rank to `to`, in their order. Fails where another rank has ended or left before it
  // came, comes with another size, or does not come in so many seconds; nothing can be exchanged from then
  // on. What a rank gave before it ended counts, so that the others all fail in the same exchange.
  Status exchange(const void* from, void* to, size_t part, double seconds);
  int ranks() const { return static_cast<int>(processes_.size()); }

 private:
  struct Row;
  Board(int rank, std::vector<int> processes) : rank_(rank), processes_(std::move(processes)) {}
  Row& row(int rank) const;
  char* slot(int rank, uint64_t round) const;
  Status wait_for(int rank, uint64_t round, double seconds) const;

  const int rank_;
  const std::vector<int> processes_;
  char* memory_ = nullptr;
  uint64_t round_ = 0;
  bool is_lost_ = false;
  std::mutex turn_;
};

}  // namespace aicf
