// Collectives among GPUs: through mailboxes on one host, and by NCCL from host to host.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "device/cuda_scope.h"
#include "device/libraries/nccl.h"
#include "kernels/collective/communicators.h"
#include "kernels/collective/launch.h"
#include "kernels/collective/mailbox.h"
#include "kernels/collective/params.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/numeric.cuh"

namespace aicf {
namespace {

constexpr size_t kTold = 64;  // bytes that a rank tells: a status, and not numbers
constexpr size_t kStatusBytes = kStatusNumbers * sizeof(int64_t);

// The mean of `ranks` rows of `count` numbers, in their order.
template <class T>
__global__ void mean_kernel(const T* rows, cuda::Compute<T>* y, int ranks, int64_t count) {
  cuda::dependency_wait();
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    cuda::Compute<T> total = cuda::widen(rows[i]);
    for (int rank = 1; rank < ranks; ++rank) total += cuda::widen(rows[rank * count + i]);
    y[i] = total / static_cast<cuda::Compute<T>>(ranks);
  }
}

// Of rows of `bytes` each; to the number that byte `done` of x becomes.
Status launch_mean(const void* rows, void* to, DType dtype, int ranks, size_t done, size_t bytes,
                   const LaunchContext& ctx) {
  return cuda::with_float_type(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr int kThreads = 256;
    const auto count = static_cast<int64_t>(bytes / sizeof(T));
    return cuda::launch(ctx, cuda::grid_stride_blocks(count, kThreads), kThreads, 0, mean_kernel<T>,
                        static_cast<const T*>(rows), static_cast<cuda::Compute<T>*>(to) + done / sizeof(T),
                        ranks, count);
  });
}

class Gpus : public Communicator {
 public:
  Gpus(int device, int rank, int ranks) : device_(device), rank_(rank), ranks_(ranks) {
    CurrentDevice current(device_);
    mailbox_ = cuda::Mailbox::make(rank_, ranks_).release();
  }

  Status use_library(const std::string& id) override {
    CurrentDevice current(device_);
    const nccl::Library* lib = nccl::library();
    nccl::UniqueId unique{};
    if (!lib) return Status::unsupported("an exchange " + std::string(nccl::kMissing));
    if (id.size() != sizeof unique.bytes) return Status::invalid("expected an id of communicator_id()");
    std::memcpy(unique.bytes, id.data(), id.size());
    AICF_TRY(nccl::check(*lib, lib->init_rank(&nccl_, ranks_, unique, rank_), "CommInitRank"));
    lib_ = lib;
    return Status::ok();
  }

  std::string address() const override { return mailbox_ ? mailbox_->address() : ""; }

  Status open(const std::vector<std::string>& addresses) override {
    CurrentDevice current(device_);
    if (!mailbox_) return Status::unsupported("this GPU has no mailbox");
    return mailbox_->open(addresses);
  }

  void use_mailboxes() override { by_mailbox_ = true; }

  Status all_gather(const void* from, void* to, size_t bytes, const Statuses& statuses,
                    const LaunchContext& ctx) const override {
    AICF_TRY(state());
    if (by_mailbox_) return mailbox_->all_gather(from, to, bytes, statuses, ctx);
    if (!lib_) return Status::state("the GPUs of the group are not connected");
    if (bytes) AICF_TRY(by_library(from, to, bytes, ctx));
    return tell(statuses, ctx);
  }

  Status all_to_all(const void* from, void* to, size_t bytes, const LaunchContext& ctx) const override {
    AICF_TRY(state());
    if (by_mailbox_) return mailbox_->all_to_all(from, to, bytes, ctx);
    if (!lib_) return Status::state("the GPUs of the group are not connected");
    for (size_t rank = 0; rank < static_cast<size_t>(ranks_); ++rank) {
      void* come = rank == static_cast<size_t>(rank_) ? to : ctx.workspace;
      AICF_TRY(by_library(static_cast<const char*>(from) + rank * bytes, come, bytes, ctx));
    }
    return Status::ok();
  }

  Status all_reduce(const void* from, void* to, DType dtype, size_t bytes, const Statuses& statuses,
                    const LaunchContext& ctx) const override {
    AICF_TRY(state());
    if (by_mailbox_) return mailbox_->all_reduce(from, to, dtype, bytes, statuses, ctx);
    if (!lib_) return Status::state("the GPUs of the group are not connected");
    for (size_t done = 0, part = 0; done < bytes; done += part) {
      part = std::min(kTurn, bytes - done);
      AICF_TRY(by_library(static_cast<const char*>(from) + done, ctx.workspace, part, ctx));
      AICF_TRY(launch_mean(ctx.workspace, to, dtype, ranks_, done, part, ctx));
    }
    return tell(statuses, ctx);
  }

  void abort() const override {
    if (aborted_.exchange(true)) return;
    if (mailbox_) mailbox_->abort();
    if (lib_) (void)lib_->abort(nccl_);
  }

  Status state() const override {
    if (aborted_) return Status::state("another rank has gone; this process must begin anew");
    if (!lib_) return Status::ok();
    int error = nccl::kSuccess;
    AICF_TRY(nccl::check(*lib_, lib_->async_error(nccl_, &error), "CommGetAsyncError"));
    return error == nccl::kInProgress ? Status::ok() : nccl::check(*lib_, error, "an exchange");
  }

  int64_t ranks() const override { return ranks_; }

 private:
  // Not within an exchange of numbers: parts of an aborted one may have come.
  Status tell(const Statuses& statuses, const LaunchContext& ctx) const {
    return statuses.to ? by_library(statuses.from, statuses.to, kStatusBytes, ctx) : Status::ok();
  }

  Status by_library(const void* from, void* to, size_t bytes, const LaunchContext& ctx) const {
    // Where the exchange is aborted, a status of ones is a failure, so that no update runs.
    if (bytes <= kTold)
      AICF_CUDA_TRY(cudaMemsetAsync(to, 0xff, bytes * static_cast<size_t>(ranks_),
                                    static_cast<cudaStream_t>(ctx.stream)));
    return nccl::check(*lib_, lib_->all_gather(from, to, bytes, nccl::kBytes, nccl_, ctx.stream),
                       "AllGather");
  }

  const int device_, rank_, ranks_;
  const nccl::Library* lib_ = nullptr;
  nccl::Communicator nccl_ = nullptr;
  cuda::Mailbox* mailbox_ = nullptr;  // stays, as `Communicator` says
  bool by_mailbox_ = false;
  mutable std::atomic<bool> aborted_{false};
};

enum class Kind { kGather, kReduce, kRows };

class CollectiveLaunch : public LaunchState {
 public:
  CollectiveLaunch(const char* id, const OpDesc& op, Kind kind, const Statuses& statuses,
                   CommunicatorPointer communicator)
      : LaunchState(id, ""),
        communicator_(std::move(communicator)),
        kind_(kind),
        from_(op.in("x").data),
        to_(op.out("y").data),
        dtype_(op.in("x").dtype),
        bytes_(op.in("x").bytes()),
        statuses_(statuses) {}

  Status launch(const LaunchContext& ctx) const override {
    if (bytes_ == 0 && !statuses_.to) return Status::ok();
    if (communicator_) switch (kind_) {
        case Kind::kGather:
          return communicator_->all_gather(from_, to_, bytes_, statuses_, ctx);
        case Kind::kReduce:
          return communicator_->all_reduce(from_, to_, dtype_, bytes_, statuses_, ctx);
        case Kind::kRows:
          return communicator_->all_to_all(from_, to_, bytes_ / static_cast<size_t>(communicator_->ranks()),
                                           ctx);
      }
    if (kind_ != Kind::kReduce)
      AICF_TRY(copy(from_, to_, bytes_, ctx));
    else if (bytes_)
      AICF_TRY(launch_mean(from_, to_, dtype_, 1, 0, bytes_, ctx));
    return copy(statuses_.from, statuses_.to, statuses_.to ? kStatusBytes : 0, ctx);
  }
  bool is_collective() const override { return true; }

 private:
  static Status copy(const void* from, void* to, size_t bytes, const LaunchContext& ctx) {
    if (bytes)
      AICF_CUDA_TRY(
          cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(ctx.stream)));
    return Status::ok();
  }

  const CommunicatorPointer communicator_;  // null for a single rank
  const Kind kind_;
  const void* from_;
  void* to_;
  const DType dtype_;
  const size_t bytes_;
  const Statuses statuses_;
};

Status prepare(const KernelVariant& self, const OpDesc& op, Kind kind, const Statuses& statuses,
               LaunchPointer* out) {
  CommunicatorPointer communicator;
  const int64_t ranks = op.attrs.get(kRanks);
  if (ranks > 1) AICF_TRY(communicator_of(op.attrs.get(kGroup), ranks, &communicator));
  *out = std::make_shared<CollectiveLaunch>(self.name, op, kind, statuses, std::move(communicator));
  return Status::ok();
}

Statuses statuses_of(const OpDesc& op) {
  return {op.in("status").ptr<const int64_t>(), op.out("statuses").ptr<int64_t>()};
}

}  // namespace

Status communicator_id(std::string* out) {
  const nccl::Library* lib = nccl::library();
  if (!lib) return Status::unsupported("an exchange " + std::string(nccl::kMissing));
  nccl::UniqueId id{};
  AICF_TRY(nccl::check(*lib, lib->unique_id(&id), "GetUniqueId"));
  out->assign(id.bytes, sizeof id.bytes);
  return Status::ok();
}

Status make_communicator(int device, int rank, int ranks, CommunicatorPointer* out) {
  *out = std::make_shared<Gpus>(device, rank, ranks);
  return Status::ok();
}

Status prepare_all_gather_cuda(const KernelVariant& self, const OpDesc& op, const std::string&,
                               LaunchPointer* out) {
  return prepare(self, op, Kind::kGather, {}, out);
}

Status prepare_all_gather_status_cuda(const KernelVariant& self, const OpDesc& op, const std::string&,
                                      LaunchPointer* out) {
  return prepare(self, op, Kind::kGather, statuses_of(op), out);
}

Status prepare_all_to_all_cuda(const KernelVariant& self, const OpDesc& op, const std::string&,
                               LaunchPointer* out) {
  return prepare(self, op, Kind::kRows, {}, out);
}

Status prepare_all_reduce_cuda(const KernelVariant& self, const OpDesc& op, const std::string&,
                               LaunchPointer* out) {
  return prepare(self, op, Kind::kReduce, {}, out);
}

Status prepare_all_reduce_status_cuda(const KernelVariant& self, const OpDesc& op, const std::string&,
                                      LaunchPointer* out) {
  return prepare(self, op, Kind::kReduce, statuses_of(op), out);
}

}  // namespace aicf
