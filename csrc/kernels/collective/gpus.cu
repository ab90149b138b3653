// Collectives among GPUs: through mailboxes on one host, and by NCCL from host to host.
#include <atomic>
#include <cstring>

#include "device/cuda_scope.h"
#include "device/libraries/nccl.h"
#include "kernels/collective/communicators.h"
#include "kernels/collective/launch.h"
#include "kernels/collective/mailbox.h"
#include "kernels/collective/params.h"
#include "kernels/common/launch.cuh"

namespace aicf {
namespace {

constexpr size_t kTold = 64;  // bytes that a rank tells: a status, and not numbers

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
    // Not within the first: parts of an aborted one may have come.
    constexpr size_t kStatusBytes = kStatusNumbers * sizeof(int64_t);
    return statuses.to ? by_library(statuses.from, statuses.to, kStatusBytes, ctx) : Status::ok();
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

class Gather : public LaunchState {
 public:
  Gather(const char* id, const OpDesc& op, CommunicatorPointer communicator)
      : LaunchState(id, ""),
        communicator_(std::move(communicator)),
        from_(op.in("x").data),
        to_(op.out("y").data),
        bytes_(op.in("x").bytes()) {}
  Gather(const char* id, const OpDesc& op, CommunicatorPointer communicator, const Statuses& statuses)
      : Gather(id, op, std::move(communicator)) {
    statuses_ = statuses;
  }

  Status launch(const LaunchContext& ctx) const override {
    if (bytes_ == 0 && !statuses_.to) return Status::ok();
    if (communicator_) return communicator_->all_gather(from_, to_, bytes_, statuses_, ctx);
    AICF_TRY(copy(from_, to_, bytes_, ctx));
    return copy(statuses_.from, statuses_.to, statuses_.to ? kStatusNumbers * sizeof(int64_t) : 0, ctx);
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
  const void* from_;
  void* to_;
  size_t bytes_;
  Statuses statuses_;
};

Status communicator_for(const OpDesc& op, CommunicatorPointer* out) {
  const int64_t ranks = op.attrs.get(kRanks);
  return ranks > 1 ? communicator_of(op.attrs.get(kGroup), ranks, out) : Status::ok();
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
  CommunicatorPointer communicator;
  AICF_TRY(communicator_for(op, &communicator));
  *out = std::make_shared<Gather>(self.name, op, std::move(communicator));
  return Status::ok();
}

Status prepare_all_gather_status_cuda(const KernelVariant& self, const OpDesc& op, const std::string&,
                                      LaunchPointer* out) {
  CommunicatorPointer communicator;
  AICF_TRY(communicator_for(op, &communicator));
  const Statuses statuses{op.in("status").ptr<const int64_t>(), op.out("statuses").ptr<int64_t>()};
  *out = std::make_shared<Gather>(self.name, op, std::move(communicator), statuses);
  return Status::ok();
}

}  // namespace aicf
