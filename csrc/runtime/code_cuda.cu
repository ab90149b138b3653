// Generated kernels of a GPU: a cubin that the driver loads, when its first launch is prepared.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "device/cuda_dependent.cuh"
#include "device/cuda_scope.h"
#include "device/cuda_status.h"
#include "device/device.h"
#include "runtime/code_cuda.h"

namespace aicf {
namespace {

// An image that the driver has loaded. All code that is made of the same image shares it, and it goes with
// the last: launches keep their code, and a captured graph is destroyed before its launches.
class LoadedImage {
 public:
  explicit LoadedImage(const std::string& image) : image_(std::make_shared<const std::string>(image)) {}
  ~LoadedImage();
  LoadedImage(const LoadedImage&) = delete;
  LoadedImage& operator=(const LoadedImage&) = delete;

  Status load() {
    AICF_CUDA_TRY(cudaLibraryLoadData(&library_, image_->data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    return Status::ok();
  }
  cudaLibrary_t library() const { return library_; }
  // Kernels of it may run there from now on.
  void used_on(int device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    devices_.insert(device);
  }

 private:
  std::shared_ptr<const std::string> image_;  // the driver may read it for as long as the library is there
  cudaLibrary_t library_ = nullptr;
  std::mutex mutex_;
  std::set<int> devices_;
};

// A library that nothing names any more, until no kernel of it can still run.
struct Retired {
  std::shared_ptr<const std::string> image;
  cudaLibrary_t library;
  std::set<int> devices;
};

struct Images {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<LoadedImage>> loaded;  // by what they hold
  std::vector<Retired> retired;
};

Images& images() {
  static auto* all = new Images;  // outlives code that is released at exit
  return *all;
}

// Waits for what runs on a device, by the rules of memory that is released; false inside a capture, or if it
// fails.
bool wait_for(int index) {
  Device* device = nullptr;
  void* memory = nullptr;
  if (!get_device("cuda:" + std::to_string(index), &device).is_ok() || device->capturing()) return false;
  if (!device->allocate(1, &memory).is_ok()) return false;
  device->release(memory);
  return !device->capturing();
}

// Unloads what is retired and idle; `images().mutex` is held. What cannot go now is looked at again when the
// next code is loaded or released.
void unload_retired() {
  std::vector<Retired>& all = images().retired;
  std::map<int, bool> idle;
  const auto gone = [&](const Retired& each) {
    for (const int device : each.devices) {
      if (idle.find(device) == idle.end()) idle[device] = wait_for(device);
      if (!idle[device]) return false;
    }
    RelaxedCapture relaxed;
    if (cudaLibraryUnload(each.library) != cudaSuccess)
      (void)cudaGetLastError();  // as at the end of a process
    return true;
  };
  all.erase(std::remove_if(all.begin(), all.end(), gone), all.end());
}

LoadedImage::~LoadedImage() {
  if (!library_) return;  // it was refused
  Images& all = images();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.loaded.find(*image_);
  if (found != all.loaded.end() && found->second.expired())
    all.loaded.erase(found);  // else it was loaded again
  all.retired.push_back({image_, library_, devices_});
  unload_retired();
}

Status load_once(const std::string& image, std::shared_ptr<LoadedImage>* out) {
  std::shared_ptr<LoadedImage> made;  // an image without a library goes after the lock
  Images& all = images();
  const std::lock_guard<std::mutex> lock(all.mutex);
  unload_retired();
  std::weak_ptr<LoadedImage>& kept = all.loaded[image];
  if (*out = kept.lock(); *out) return Status::ok();
  made = std::make_shared<LoadedImage>(image);
  if (const Status status = made->load(); !status.is_ok()) {
    all.loaded.erase(image);
    return status;
  }
  kept = made;
  *out = std::move(made);
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

  // The functions of all phases, ready to be launched on `device`, which must be current; then that of all
  // phases together, where the device holds its blocks at once.
  Status functions(int device, std::vector<cudaKernel_t>* out) const;

  // Made by load_cuda_code: launches keep the code alive through it.
  std::weak_ptr<const CudaCode> self;

 private:
  Status runs_on(int device) const;
  Status load(int device, std::vector<cudaKernel_t>* out) const;
  Status load(const Phase& phase, int device, cudaKernel_t* out) const;
  Status refuse(const std::string& why) const { return Status::invalid("the code of " + id() + ": " + why); }

  const int sm_;
  const std::string image_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<LoadedImage> loaded_;                 // null before the first launch is prepared
  mutable std::map<int, std::vector<cudaKernel_t>> functions_;  // by device
};

class CudaCodeLaunch : public LaunchState {
 public:
  // `gates`: what the blocks of all phases together meet by, or null for a launch of each phase.
  CudaCodeLaunch(std::shared_ptr<const CudaCode> code, std::vector<cudaKernel_t> functions,
                 std::vector<void*> addresses, std::shared_ptr<void> gates)
      : LaunchState(code->id(), ""),
        code_(std::move(code)),
        functions_(std::move(functions)),
        addresses_(std::move(addresses)),
        gates_(std::move(gates)) {}

  std::vector<std::string> functions(const LaunchContext& ctx) const override {
    if (is_one(ctx)) return {code_->together()->function};
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
    const size_t tables = code_->one_table() ? 1 : addresses_.size(), count = tables + 3;
    if (count > kUsual) many.resize(count);
    void** arguments = count > kUsual ? many.data() : usual.data();
    for (size_t i = 0; i < tables; ++i) arguments[i] = const_cast<void**>(&addresses_[i]);
    void* workspace = ctx.workspace;
    const int64_t* predicate = ctx.predicate;
    void* gates = gates_.get();
    arguments[count - 3] = &workspace;
    arguments[count - 2] = &predicate;
    arguments[count - 1] = &gates;  // the functions of phases take one argument less
    if (is_one(ctx)) {
      cudaLaunchConfig_t config = configured(*code_->together(), ctx);
      cudaLaunchAttribute attribute = {};
      attribute.id = cudaLaunchAttributeCooperative;
      attribute.val.cooperative = 1;
      config.attrs = &attribute;
      config.numAttrs = 1;
      AICF_CUDA_TRY(
          cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(functions_.back()), arguments));
      return Status::ok();
    }
    for (size_t i = 0; i < code_->phases().size(); ++i) {
      const Phase& phase = code_->phases()[i];
      if (phase.count == 0) continue;
      cudaLaunchConfig_t config = configured(phase, ctx);
      const void* const kernel = reinterpret_cast<const void*>(functions_[i]);
      cudaLaunchAttribute attribute = {};
      if (code_->waits()) AICF_TRY(cuda::allow_programmatic(ctx, kernel, &config, &attribute));
      AICF_CUDA_TRY(cudaLaunchKernelExC(&config, kernel, arguments));
    }
    return Status::ok();
  }

 private:
  // All phases as one launch, which begins when the whole device is free: beside a collective that would be
  // at its end.
  bool is_one(const LaunchContext& ctx) const { return gates_ && !ctx.of_ranks; }

  static cudaLaunchConfig_t configured(const Phase& phase, const LaunchContext& ctx) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(phase.count));
    config.blockDim = dim3(static_cast<unsigned>(phase.threads));
    config.dynamicSmemBytes = static_cast<size_t>(phase.shared);
    config.stream = static_cast<cudaStream_t>(ctx.stream);
    return config;
  }

  const std::shared_ptr<const CudaCode> code_;
  const std::vector<cudaKernel_t> functions_;
  const std::vector<void*> addresses_;
  const std::shared_ptr<void> gates_;
};

// Whether the device holds all blocks of a function at once, so that they may wait for each other.
Status holds(int device, cudaKernel_t function, const Phase& phase, bool* out) {
  int processors = 0, supported = 0, each = 0;
  AICF_CUDA_TRY(cudaDeviceGetAttribute(&supported, cudaDevAttrCooperativeLaunch, device));
  AICF_CUDA_TRY(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  AICF_CUDA_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &each, reinterpret_cast<const void*>(function), phase.threads, static_cast<size_t>(phase.shared)));
  *out = supported && phase.count > 0 && phase.count <= static_cast<int64_t>(each) * processors;
  return Status::ok();
}

// Zeros for so many blocks, which go with the last launch that uses them.
Status make_gates(int index, int64_t blocks, std::shared_ptr<void>* out) {
  Device* device = nullptr;
  void* memory = nullptr;
  AICF_TRY(get_device("cuda:" + std::to_string(index), &device));
  AICF_TRY(device->allocate_zeros(static_cast<size_t>(blocks) * 2 * sizeof(uint32_t), &memory));
  *out = std::shared_ptr<void>(memory, [device](void* p) { device->release(p); });
  return device->synchronize(nullptr);
}

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
  if (!loaded_) {
    const Status loaded = load_once(image_, &loaded_);
    if (!loaded.is_ok()) return loaded.at("the code of " + id());
  }
  loaded_->used_on(device);
  out->assign(phases().size(), nullptr);
  for (size_t i = 0; i < phases().size(); ++i) AICF_TRY(load(phases()[i], device, &(*out)[i]));
  if (!together()) return Status::ok();
  cudaKernel_t all = nullptr;
  bool fits = false;
  AICF_TRY(load(*together(), device, &all));
  AICF_TRY(holds(device, all, *together(), &fits));
  if (fits) out->push_back(all);
  return Status::ok();
}

Status CudaCode::load(const Phase& phase, int device, cudaKernel_t* out) const {
  const cudaError_t error = cudaLibraryGetKernel(out, loaded_->library(), phase.function.c_str());
  if (error == cudaErrorSymbolNotFound) {
    (void)cudaGetLastError();
    return refuse("it has no function '" + phase.function + "'");
  }
  AICF_CUDA_TRY(error);
  // Brings it to the device now: in a capture, or beside work that runs, would be too late.
  cudaFuncAttributes needs = {};
  AICF_CUDA_TRY(cudaFuncGetAttributes(&needs, reinterpret_cast<const void*>(*out)));
  if (phase.threads > needs.maxThreadsPerBlock)
    return refuse("function '" + phase.function + "' runs " + std::to_string(needs.maxThreadsPerBlock) +
                  " threads a block at most, got " + std::to_string(phase.threads));
  if (phase.shared > needs.maxDynamicSharedSizeBytes)
    AICF_CUDA_TRY(cudaKernelSetAttributeForDevice(*out, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                  phase.shared, device));
  return Status::ok();
}

Status CudaCode::prepare(const std::vector<void*>& addresses, LaunchPointer* out) const {
  int device = 0;
  AICF_TRY(device_of(addresses, &device));
  CurrentDevice current(device);
  RelaxedCapture relaxed;
  std::vector<cudaKernel_t> ready;
  AICF_TRY(functions(device, &ready));
  std::shared_ptr<void> gates;
  if (ready.size() > phases().size()) AICF_TRY(make_gates(device, together()->count, &gates));
  *out = std::make_shared<CudaCodeLaunch>(self.lock(), std::move(ready), addresses, std::move(gates));
  return Status::ok();
}

}  // namespace

Status load_cuda_code(CodeSpec spec, int sm, const std::string& image, CodePointer* out) {
  AICF_TRY(check_code(spec));
  std::vector<Phase> all = spec.phases;
  if (spec.together) all.push_back(*spec.together);
  for (const Phase& phase : all)
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

size_t loaded_cuda_images() {
  Images& all = images();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.loaded.size() + all.retired.size();
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
    const Phase& phase = i < cuda->phases().size() ? cuda->phases()[i] : *cuda->together();
    out->push_back({phase.function, needs.numRegs, needs.localSizeBytes});
  }
  return Status::ok();
}

}  // namespace aicf
