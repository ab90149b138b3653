// How the ranks of a step exchange bytes. A kernel of the host says what; who does it is set from outside.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "op/status.h"

namespace aicf {

// `part` bytes of each rank go to `ranks` parts in their order: the same on each rank, or `apart`, where
// `from` has a part for each of them.
struct Exchange {
  const std::string& group;
  const void* from;
  void* to;
  size_t part;  // bytes
  int64_t ranks;
  bool apart = false;
};

// Returns when all is there, or says why it will not come. Never called for a single rank.
using RunExchange = Status (*)(const Exchange&);

void use_exchange(RunExchange run);
Status run_exchange(const Exchange& exchange);

}  // namespace aicf
