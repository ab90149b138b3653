// Collectives on the CPU: the bytes travel by what use_exchange() has set.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/collective/exchange.h"
#include "kernels/collective/launch.h"
#include "kernels/collective/params.h"
#include "kernels/common/cpu_parallel.h"
#include "kernels/common/cpu_types.h"

namespace aicf {
namespace {

RunExchange runner = nullptr;

constexpr size_t kTogether = size_t{1} << 16;  // bytes of a rank, above which a copy costs more than a round

// The mean of `count` numbers of each rank, whose rows are `stride` bytes apart, to y.
template <class T>
void mean(const char* rows, size_t stride, int64_t ranks, int64_t count, cpu::Compute<T>* y) {
  constexpr int64_t kSome = 2048;  // so many sums stay in the cache
  cpu::in_parallel(count, cpu::kGrainElements, [=](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kSome) {
      const int64_t last = std::min(end, first + kSome);
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const auto* x = reinterpret_cast<const T*>(rows + static_cast<size_t>(rank) * stride);
        for (int64_t i = first; i < last; ++i) y[i] = rank == 0 ? cpu::widen(x[i]) : y[i] + cpu::widen(x[i]);
      }
      for (int64_t i = first; i < last; ++i) y[i] /= static_cast<cpu::Compute<T>>(ranks);
    }
  });
}

// The same, from the number at byte `done` of x on.
Status mean(const OpDesc& op, const char* rows, size_t stride, size_t done, size_t bytes) {
  return cpu::with_float_type(op.in("x").dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    mean<T>(rows, stride, op.attrs.get(kRanks), static_cast<int64_t>(bytes / sizeof(T)),
            op.out("y").ptr<cpu::Compute<T>>() + done / sizeof(T));
  });
}

// Runs `whole`, then the exchange of statuses; or both as one, if that is small: then `take` is told where
// the rows of all ranks are, and how many bytes are between two of them.
template <class Take>
Status with_status(const OpDesc& op, const LaunchContext& ctx,
                   Status (*whole)(const OpDesc&, const LaunchContext&), Take take) {
  const TensorDesc &x = op.in("x"), &status = op.in("status"), &all = op.out("statuses");
  const std::string& group = op.attrs.get(kGroup);
  const int64_t ranks = op.attrs.get(kRanks);
  const size_t bytes = x.bytes(), part = bytes + status.bytes();
  if (ranks == 1 || part > kTogether) {
    AICF_TRY(whole(op, ctx));
    if (ranks > 1) return run_exchange({group, status.data, all.data, status.bytes(), ranks});
    std::memcpy(all.data, status.data, status.bytes());
    return Status::ok();
  }
  std::vector<char> given(part), come(part * static_cast<size_t>(ranks));
  if (bytes) std::memcpy(given.data(), x.data, bytes);
  std::memcpy(given.data() + bytes, status.data, status.bytes());
  AICF_TRY(run_exchange({group, given.data(), come.data(), part, ranks}));
  for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank)
    std::memcpy(static_cast<char*>(all.data) + rank * status.bytes(), come.data() + rank * part + bytes,
                status.bytes());
  return bytes ? take(come.data(), part) : Status::ok();
}

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

Status all_to_all_cpu(const OpDesc& op, const LaunchContext&) {
  const TensorDesc &x = op.in("x"), &y = op.out("y");
  const int64_t ranks = op.attrs.get(kRanks);
  const size_t bytes = x.bytes();
  if (ranks > 1)
    return run_exchange(
        {op.attrs.get(kGroup), x.data, y.data, bytes / static_cast<size_t>(ranks), ranks, true});
  if (bytes) std::memcpy(y.data, x.data, bytes);
  return Status::ok();
}

Status all_gather_status_cpu(const OpDesc& op, const LaunchContext& ctx) {
  return with_status(op, ctx, all_gather_cpu, [&](const char* rows, size_t stride) {
    const size_t bytes = op.in("x").bytes();
    for (size_t rank = 0; rank < static_cast<size_t>(op.attrs.get(kRanks)); ++rank)
      std::memcpy(op.out("y").ptr<char>() + rank * bytes, rows + rank * stride, bytes);
    return Status::ok();
  });
}

Status all_reduce_cpu(const OpDesc& op, const LaunchContext& ctx) {
  const int64_t ranks = op.attrs.get(kRanks);
  const size_t bytes = op.in("x").bytes();
  const auto* x = op.in("x").ptr<const char>();
  if (ranks == 1) return mean(op, x, bytes, 0, bytes);
  for (size_t done = 0, part = 0; done < bytes; done += part) {
    part = std::min(kTurn, bytes - done);
    AICF_TRY(run_exchange({op.attrs.get(kGroup), x + done, ctx.workspace, part, ranks}));
    AICF_TRY(mean(op, static_cast<const char*>(ctx.workspace), part, done, part));
  }
  return Status::ok();
}

Status all_reduce_status_cpu(const OpDesc& op, const LaunchContext& ctx) {
  return with_status(op, ctx, all_reduce_cpu, [&](const char* rows, size_t stride) {
    return mean(op, rows, stride, 0, op.in("x").bytes());
  });
}

}  // namespace aicf
