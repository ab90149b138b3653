// Generated kernels of the CPU: machine code in memory, called over ranges of its items.
#include <algorithm>
#include <array>

#include "device/pool.h"
#include "runtime/called_functions.h"
#include "runtime/code.h"
#include "runtime/elf.h"

namespace aicf {
namespace {

using Function = void (*)(void* const* addresses, int64_t begin, int64_t end);

class CpuCode : public KernelCode {
 public:
  struct Part {
    Function function;
    int64_t count, grain;
  };

  CpuCode(CodeSpec spec, std::unique_ptr<ObjectImage> image, std::vector<void*> called)
      : KernelCode(std::move(spec)), image_(std::move(image)), called_(std::move(called)) {}
  // Each phase is a function of the object, or is refused by name.
  Status find_functions();

  DeviceType device() const override { return DeviceType::Cpu; }
  Status prepare(const std::vector<void*>& addresses, LaunchPointer* out) const override;

  const std::vector<Part>& parts() const { return parts_; }
  void* called() const { return const_cast<void**>(called_.data()); }
  // Made by load_cpu_code: launches keep the code alive through it.
  std::weak_ptr<const CpuCode> self;

 private:
  const std::unique_ptr<ObjectImage> image_;
  const std::vector<void*> called_;
  std::vector<Part> parts_;
};

class CpuCodeLaunch : public LaunchState {
 public:
  CpuCodeLaunch(std::shared_ptr<const CpuCode> code, std::vector<void*> addresses)
      : LaunchState(code->id(), ""), code_(std::move(code)), addresses_(std::move(addresses)) {}

  Status launch(const LaunchContext& ctx) const override {
    constexpr size_t kUsual = 64;  // more addresses cost an allocation
    std::array<void*, kUsual> usual;
    std::vector<void*> many;
    const size_t count = addresses_.size() + 2;
    if (count > kUsual) many.resize(count);
    void** addresses = count > kUsual ? many.data() : usual.data();
    std::copy(addresses_.begin(), addresses_.end(), addresses);
    addresses[count - 2] = ctx.workspace;
    addresses[count - 1] = code_->called();
    for (const CpuCode::Part& part : code_->parts())
      run_in_pool(part.count, part.grain,
                  [&](int64_t begin, int64_t end) { part.function(addresses, begin, end); });
    return Status::ok();
  }

 private:
  const std::shared_ptr<const CpuCode> code_;
  const std::vector<void*> addresses_;
};

Status CpuCode::find_functions() {
  for (const Phase& phase : phases()) {
    void* function = image_->function(phase.function);
    if (!function)
      return Status::invalid("the code of " + id() + " has no function '" + phase.function + "'");
    parts_.push_back({reinterpret_cast<Function>(function), phase.count, phase.grain});
  }
  return Status::ok();
}

Status CpuCode::prepare(const std::vector<void*>& addresses, LaunchPointer* out) const {
  *out = std::make_shared<CpuCodeLaunch>(self.lock(), addresses);
  return Status::ok();
}

}  // namespace

Status load_cpu_code(CodeSpec spec, const std::string& object, const std::vector<std::string>& called,
                     CodePointer* out) {
  AICF_TRY(check_code(spec));
  const std::string place = "the code of " + spec.id;
  std::vector<void*> functions;
  for (const std::string& name : called) {
    functions.push_back(called_function(name));
    if (!functions.back())
      return Status::invalid(place + ": there is no function '" + name + "' here; there are " +
                             called_functions());
  }
  std::unique_ptr<ObjectImage> image;
  const Status loaded = ObjectImage::load(object, &image);
  if (!loaded.is_ok()) return loaded.at(place);
  auto code = std::make_shared<CpuCode>(std::move(spec), std::move(image), std::move(functions));
  code->self = code;
  AICF_TRY(code->find_functions());
  *out = std::move(code);
  return Status::ok();
}

}  // namespace aicf
