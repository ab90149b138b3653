// Collectives on the CPU: the bytes travel by what use_exchange() has set.
#include <cstring>
#include <vector>

#include "kernels/collective/exchange.h"
#include "kernels/collective/launch.h"
#include "kernels/collective/params.h"

namespace aicf {
namespace {

RunExchange runner = nullptr;

constexpr size_t kTogether = size_t{1} << 16;  // bytes of a rank, above which a copy costs more than a round

}  // namespace

void use_exchange(RunExchange run) { runner = run; }

Status run_exchange(const Exchange& exchange) {
  return runner ? runner(exchange) : Status::state("this process has no ranks to exchange with");
}

Status all_gather_cpu(const OpDesc& op, const LaunchContext&) {
  const TensorDesc &x = op.in("x"), &y = op.out("y");
  const int64_t ranks = op.attrs.get(kRanks);
  if (ranks > 1) return run_exchange({op.attrs.get(kGroup), x.data, y.data, x.bytes(), ranks});
  if (x.bytes()) std::memcpy(y.data, x.data, x.bytes());
  return Status::ok();
}

Status all_gather_status_cpu(const OpDesc& op, const LaunchContext& ctx) {
  const TensorDesc &x = op.in("x"), &y = op.out("y"), &status = op.in("status"), &all = op.out("statuses");
  const std::string& group = op.attrs.get(kGroup);
  const int64_t ranks = op.attrs.get(kRanks);
  const size_t bytes = x.bytes(), part = bytes + status.bytes();
  if (ranks == 1 || part > kTogether) {
    AICF_TRY(all_gather_cpu(op, ctx));
    if (ranks > 1) return run_exchange({group, status.data, all.data, status.bytes(), ranks});
    std::memcpy(all.data, status.data, status.bytes());
    return Status::ok();
  }
  std::vector<char> given(part), come(part * static_cast<size_t>(ranks));
  if (bytes) std::memcpy(given.data(), x.data, bytes);
  std::memcpy(given.data() + bytes, status.data, status.bytes());
  AICF_TRY(run_exchange({group, given.data(), come.data(), part, ranks}));
  for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank) {
    const char* theirs = come.data() + rank * part;
    if (bytes) std::memcpy(static_cast<char*>(y.data) + rank * bytes, theirs, bytes);
    std::memcpy(static_cast<char*>(all.data) + rank * status.bytes(), theirs + bytes, status.bytes());
  }
  return Status::ok();
}

}  // namespace aicf
