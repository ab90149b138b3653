#include "runtime/dispatch.h"

#include <map>
#include <mutex>

#include "device/buffer.h"
#include "device/check_memory.h"
#include "op/registry.h"
#include "op/validate.h"
#include "runtime/recording.h"

namespace aicf {
namespace {

// The device of all operands.
Status common_device(const OpDesc& op, Device** out) {
  if (operand_count(op) == 0)
    return Status::invalid(std::string(op.schema->name) + " has no operands to take a device from");
  const TensorDesc& first = operand(op, 0);
  for (size_t i = 1; i < operand_count(op); ++i) {
    const TensorDesc& t = operand(op, i);
    if (t.device == first.device && t.device_index == first.device_index) continue;
    return Status::invalid("operands on two devices: " + operand_name(op, 0) + " is on " +
                           device_name(first.device, first.device_index) + ", " + operand_name(op, i) +
                           " on " + device_name(t.device, t.device_index));
  }
  return get_device(device_name(first.device, first.device_index), out);
}

// Scratch memory of direct calls, one buffer a device and stream, grown on demand. Its lock is held while the
// launch is enqueued: on a stream the launches that share a buffer follow one another.
struct WorkspacePool {
  std::mutex mutex;
  std::map<std::pair<Device*, void*>, DeviceBuffer> buffers;

  static WorkspacePool& get() {
    static auto* pool = new WorkspacePool;  // never destroyed: a device may be gone when the process ends
    return *pool;
  }
};

Status enqueue(Device& device, const KernelVariant& variant, const OpDesc& op, const std::string& name,
               void* stream, const std::vector<std::shared_ptr<void>>& owners) {
  Node node;
  AICF_TRY(prepare_kernel(variant, op, name, &node.launch));
  LaunchContext& context = node.context;
  context.stream = stream;
  context.workspace_bytes = variant.query_workspace ? variant.query_workspace(op) : 0;
  if (Kept* kept = open_recording(device)) {  // the graph owns what its replays use
    if (context.workspace_bytes) {
      DeviceBuffer buffer;
      AICF_TRY(DeviceBuffer::allocate(device, context.workspace_bytes, &buffer));
      context.workspace = buffer.data();
      kept->workspaces.push_back(std::move(buffer));
    }
    kept->owners.insert(kept->owners.end(), owners.begin(), owners.end());
    return device.enqueue(node);
  }
  if (!context.workspace_bytes) return device.enqueue(node);

  WorkspacePool& pool = WorkspacePool::get();
  const std::lock_guard<std::mutex> lock(pool.mutex);
  DeviceBuffer& buffer = pool.buffers[{&device, stream}];
  if (buffer.bytes() < context.workspace_bytes) {
    AICF_TRY(device.synchronize(stream));  // the launches before may still use the smaller one
    AICF_TRY(DeviceBuffer::allocate(device, context.workspace_bytes, &buffer));
  }
  context.workspace = buffer.data();
  return device.enqueue(node);
}

}  // namespace

Status dispatch(const OpDesc& op, const std::string& kernel_id, void* stream,
                const std::vector<std::shared_ptr<void>>& owners, const KernelVariant** ran) {
  const KernelRegistry& registry = KernelRegistry::get();
  AICF_TRY(check_use(op));
  Device* device = nullptr;
  AICF_TRY(common_device(op, &device));
  AICF_TRY(check_memory(op, *device));
  AICF_TRY(check_aliasing(op));
  const KernelVariant* variant = nullptr;
  AICF_TRY(registry.select(op, device->target(), kernel_id, &variant));
  AICF_TRY(enqueue(*device, *variant, op, kernel_id, stream, owners));
  *ran = variant;
  return Status::ok();
}

}  // namespace aicf
