// Launchers of collectives: every rank of a group runs the same launch, in the same order.
#pragma once
#include "op/variant.h"

namespace aicf {

// (x, after...) -> (y[ranks, x...]): x of every rank, in their order. `after` is what must be there before.
Status all_gather_cpu(const OpDesc& op, const LaunchContext& ctx);
// (x, status, after...) -> (y[ranks, x...], statuses[ranks, 3]): the same, with the status of every rank.
Status all_gather_status_cpu(const OpDesc& op, const LaunchContext& ctx);
// (x[ranks, ...], after...) -> (y[ranks, ...]): of every rank, in their order, the row that it has for this
// one.
Status all_to_all_cpu(const OpDesc& op, const LaunchContext& ctx);
// (x, after...) -> (y[x...]): the mean of x over the ranks, which are added up in their order, in f32 or f64.
Status all_reduce_cpu(const OpDesc& op, const LaunchContext& ctx);
// (x, status, after...) -> (y[x...], statuses[ranks, 3])
Status all_reduce_status_cpu(const OpDesc& op, const LaunchContext& ctx);
// Bytes in which x of all ranks is gathered, a part at a time.
size_t all_reduce_workspace(const OpDesc& op);
// Bytes in which a row of all ranks is gathered.
size_t all_to_all_workspace(const OpDesc& op);
// The same among GPUs; see communicators.h.
Status prepare_all_gather_cuda(const KernelVariant& self, const OpDesc& op, const std::string& asked,
                               LaunchPointer* out);
Status prepare_all_gather_status_cuda(const KernelVariant& self, const OpDesc& op, const std::string& asked,
                                      LaunchPointer* out);
Status prepare_all_to_all_cuda(const KernelVariant& self, const OpDesc& op, const std::string& asked,
                               LaunchPointer* out);
Status prepare_all_reduce_cuda(const KernelVariant& self, const OpDesc& op, const std::string& asked,
                               LaunchPointer* out);
Status prepare_all_reduce_status_cuda(const KernelVariant& self, const OpDesc& op, const std::string& asked,
                                      LaunchPointer* out);

}  // namespace aicf
