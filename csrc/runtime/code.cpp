#include "runtime/code.h"

#include "op/validate.h"

namespace aicf {

bool KernelCode::in_place(size_t out, size_t in) const {
  for (const auto& [result, operand] : spec_.in_place)
    if (result == out && operand == in) return true;
  return false;
}

Status check_code(const CodeSpec& spec) {
  if (spec.id.empty()) return Status::invalid("code needs the id of its kernel");
  const auto refuse = [&](const std::string& why) {
    return Status::invalid("the code of " + spec.id + ": " + why);
  };
  if (spec.phases.empty()) return refuse("expected one phase or more");
  for (const Phase& phase : spec.phases) {
    if (phase.function.empty()) return refuse("a phase needs the name of its function");
    if (phase.count < 0 || phase.grain < 1 || phase.threads < 0 || phase.shared < 0)
      return refuse("phase " + phase.function +
                    ": expected a count of 0 or more, a grain of 1 or more, and " +
                    "threads and shared of 0 or more, got " + std::to_string(phase.count) + ", " +
                    std::to_string(phase.grain) + ", " + std::to_string(phase.threads) + " and " +
                    std::to_string(phase.shared));
  }
  return Status::ok();
}

#ifndef AICF_WITH_CUDA
size_t loaded_cuda_images() { return 0; }

Status load_cuda_code(CodeSpec spec, int, const std::string&, CodePointer*) {
  AICF_TRY(check_code(spec));
  return Status::unsupported("this build has no CUDA, which the code of " + spec.id +
                             " needs; build it where nvcc is found");
}
#endif

}  // namespace aicf
