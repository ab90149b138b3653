// Generated kernels of a GPU: a cubin that the driver loads, when its first launch is prepared.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "device/cuda_dependent.cuh"
#include "device/cuda_scope.h"
#include "device/cuda_status.h"
#include "runtime/code_cuda.h"

namespace aicf {
namespace {

// Images that are loaded, by what they hold. They stay for as long as the process: a kernel may still run, or
// be part of a graph, when the last launch of it is forgotten.
Status load_once(const std::string& image, cudaLibrary_t* out) {
  static std::mutex mutex;
  static auto* loaded = new std::map<std::string, cudaLibrary_t>();  // never destroyed, like the driver's
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = loaded->find(image);
  if (found != loaded->end()) {
    *out = found->second;
    return Status::ok();
  }
  const auto kept = loaded->emplace(image, nullptr).first;  // the driver may read it later
  const cudaError_t error =
      cudaLibraryLoadData(out, kept->first.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (error != cudaSuccess) loaded->erase(kept);
  AICF_CUDA_TRY(error);
  kept->second = *out;
  return Status::ok();
}

// The device of the first address that has one, else the current device.
Status device_of(const std::vector<void*>& addresses, int* out) {
  for (const void* address : addresses) {
    if (!address) continue;
    cudaPointerAttributes attributes = {};
    AICF_CUDA_TRY(cudaPointerGetAttributes(&attributes, address));
    if (attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged) continue;
    *out = attributes.device;
    return Status::ok();
  }
  AICF_CUDA_TRY(cudaGetDevice(out));
  return Status::ok();
}

class CudaCode : public KernelCode {
 public:
  CudaCode(CodeSpec spec, int sm, std::string image)
      : KernelCode(std::move(spec)), sm_(sm), image_(std::move(image)) {}

  DeviceType device() const override { return DeviceType::Cuda; }
  int sm() const override { return sm_; }
  Status prepare(const std::vector<void*>& addresses, LaunchPointer* out) const override;

  // The functions of all phases, ready to be launched on `device`, which must be current.
  Status functions(int device, std::vector<cudaKernel_t>* out) const;

  // Made by load_cuda_code: launches keep the code alive through it.
  std::weak_ptr<const CudaCode> self;

 private:
  Status runs_on(int device) const;
  Status load(int device, std::vector<cudaKernel_t>* out) const;
  Status refuse(const std::string& why) const { return Status::invalid("the code of " + id() + ": " + why); }

  const int sm_;
  const std::string image_;
  mutable std::mutex mutex_;
  mutable std::map<int, std::vector<cudaKernel_t>> functions_;  // by device
};

class CudaCodeLaunch : public LaunchState {
 public:
  CudaCodeLaunch(std::shared_ptr<const CudaCode> code, std::vector<cudaKernel_t> functions,
                 std::vector<void*> addresses)
      : LaunchState(code->id(), ""),
        code_(std::move(code)),
        functions_(std::move(functions)),
        addresses_(std::move(addresses)) {}

  std::vector<std::string> functions() const override {
    std::vector<std::string> names;
    for (const Phase& phase : code_->phases())
      if (phase.count) names.push_back(phase.function);
    return names;
  }

  // CUDA copies the arguments at the call, also when it is captured.
  Status launch(const LaunchContext& ctx) const override {
    constexpr size_t kUsual = 64;  // more arguments cost an allocation
    std::array<void*, kUsual> usual;
    std::vector<void*> many;
    const size_t tables = code_->one_table() ? 1 : addresses_.size(), count = tables + 2;
    if (count > kUsual) many.resize(count);
    void** arguments = count > kUsual ? many.data() : usual.data();
    for (size_t i = 0; i < tables; ++i) arguments[i] = const_cast<void**>(&addresses_[i]);
    void* workspace = ctx.workspace;
    const int64_t* unless = ctx.unless;
    arguments[count - 2] = &workspace;
    arguments[count - 1] = &unless;
    for (size_t i = 0; i < functions_.size(); ++i) {
      const Phase& phase = code_->phases()[i];
      if (phase.count == 0) continue;
      cudaLaunchConfig_t config = {};
      config.gridDim = dim3(static_cast<unsigned>(phase.count));
      config.blockDim = dim3(static_cast<unsigned>(phase.threads));
      config.dynamicSmemBytes = static_cast<size_t>(phase.shared);
      config.stream = static_cast<cudaStream_t>(ctx.stream);
      const void* const kernel = reinterpret_cast<const void*>(functions_[i]);
      cudaLaunchAttribute attribute = {};
      if (code_->waits()) AICF_TRY(cuda::allow_programmatic(ctx, kernel, &config, &attribute));
      AICF_CUDA_TRY(cudaLaunchKernelExC(&config, kernel, arguments));
    }
    return Status::ok();
  }

 private:
  const std::shared_ptr<const CudaCode> code_;
  const std::vector<cudaKernel_t> functions_;
  const std::vector<void*> addresses_;
};

// A cubin runs on its own architecture, and on later ones of the same major number.
Status CudaCode::runs_on(int device) const {
  int major = 0, minor = 0;
  AICF_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  AICF_CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  if (major == sm_ / 10 && minor >= sm_ % 10) return Status::ok();
  return refuse("it was compiled for sm_" + std::to_string(sm_) + ", and cuda:" + std::to_string(device) +
                " is of sm_" + std::to_string(major * 10 + minor) + "; compile it for that target");
}

Status CudaCode::functions(int device, std::vector<cudaKernel_t>* out) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = functions_.find(device);
  if (found == functions_.end()) {
    AICF_TRY(runs_on(device));
    AICF_TRY(load(device, out));
    functions_.emplace(device, *out);
    return Status::ok();
  }
  *out = found->second;
  return Status::ok();
}

Status CudaCode::load(int device, std::vector<cudaKernel_t>* out) const {
  cudaLibrary_t library = nullptr;
  const Status loaded = load_once(image_, &library);
  if (!loaded.is_ok()) return loaded.at("the code of " + id());
  out->clear();
  for (const Phase& phase : phases()) {
    cudaKernel_t function = nullptr;
    const cudaError_t error = cudaLibraryGetKernel(&function, library, phase.function.c_str());
    if (error == cudaErrorSymbolNotFound) {
      (void)cudaGetLastError();
      return refuse("it has no function '" + phase.function + "'");
    }
    AICF_CUDA_TRY(error);
    // Brings it to the device now: in a capture, or beside work that runs, would be too late.
    cudaFuncAttributes needs = {};
    AICF_CUDA_TRY(cudaFuncGetAttributes(&needs, reinterpret_cast<const void*>(function)));
    if (phase.threads > needs.maxThreadsPerBlock)
      return refuse("function '" + phase.function + "' runs " + std::to_string(needs.maxThreadsPerBlock) +
                    " threads a block at most, got " + std::to_string(phase.threads));
    if (phase.shared > needs.maxDynamicSharedSizeBytes)
      AICF_CUDA_TRY(cudaKernelSetAttributeForDevice(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                    phase.shared, device));
    out->push_back(function);
  }
  return Status::ok();
}

Status CudaCode::prepare(const std::vector<void*>& addresses, LaunchPointer* out) const {
  int device = 0;
  AICF_TRY(device_of(addresses, &device));
  CurrentDevice current(device);
  RelaxedCapture relaxed;
  std::vector<cudaKernel_t> ready;
  AICF_TRY(functions(device, &ready));
  *out = std::make_shared<CudaCodeLaunch>(self.lock(), std::move(ready), addresses);
  return Status::ok();
}

}  // namespace

Status load_cuda_code(CodeSpec spec, int sm, const std::string& image, CodePointer* out) {
  AICF_TRY(check_code(spec));
  for (const Phase& phase : spec.phases)
    if (phase.count > INT32_MAX || phase.threads < 1)
      return Status::invalid("the code of " + spec.id + ": phase " + phase.function + ": expected at most " +
                             std::to_string(INT32_MAX) + " blocks of 1 thread or more, got " +
                             std::to_string(phase.count) + " of " + std::to_string(phase.threads));
  if (image.empty()) return Status::invalid("the code of " + spec.id + " is empty");
  auto code = std::make_shared<CudaCode>(std::move(spec), sm, image);
  code->self = code;
  *out = std::move(code);
  return Status::ok();
}

Status needs_of_cuda_code(const KernelCode& code, int device, std::vector<FunctionNeeds>* out) {
  const auto* cuda = dynamic_cast<const CudaCode*>(&code);
  if (!cuda) return Status::invalid(code.id() + " is not code of a GPU");
  CurrentDevice current(device);
  RelaxedCapture relaxed;
  std::vector<cudaKernel_t> functions;
  AICF_TRY(cuda->functions(device, &functions));
  out->clear();
  for (size_t i = 0; i < functions.size(); ++i) {
    cudaFuncAttributes needs = {};
    AICF_CUDA_TRY(cudaFuncGetAttributes(&needs, reinterpret_cast<const void*>(functions[i])));
    out->push_back({cuda->phases()[i].function, needs.numRegs, needs.localSizeBytes});
  }
  return Status::ok();
}

}  // namespace aicf
