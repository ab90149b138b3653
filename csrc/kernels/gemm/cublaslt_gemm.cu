// Products by cuBLASLt. Its matrices lie by columns: a row-major z = op(a) op(b) is the column-major
// z^T = op(b)^T op(a)^T of the same memory, so A is b and B is a.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/cuda_scope.h"
#include "device/libraries/cublaslt.h"
#include "kernels/common/launch.cuh"
#include "kernels/gemm/cublaslt_gemm.h"
#include "kernels/gemm/epilogue.cuh"

namespace aicf {
namespace {

using namespace cuda;
using Lt = cublaslt::Library;
using cublaslt::Object;

cublaslt::DataType data_type(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return cublaslt::kF64;
    case DType::F16:
      return cublaslt::kF16;
    case DType::BF16:
      return cublaslt::kBF16;
    default:
      return cublaslt::kF32;
  }
}

// One for each device, for as long as the process lives.
Status handle_of(const Lt& lib, int device, Object* out) {
  static std::mutex mutex;
  static auto* handles = new std::map<int, Object>();
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = handles->find(device);
  if (found != handles->end()) {
    *out = found->second;
    return Status::ok();
  }
  AICF_TRY(cublaslt::check(lib, lib.create(out), "create"));
  handles->emplace(device, *out);
  return Status::ok();
}

// A descriptor, a layout or a preference.
class Owned {
 public:
  explicit Owned(int (*destroy)(Object)) : destroy_(destroy) {}
  ~Owned() {
    if (object) (void)destroy_(object);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Object object = nullptr;

 private:
  int (*destroy_)(Object);
};

// Where the products of a call lie, and the bytes from call to call.
struct Operand {
  const void* data;
  int64_t leading, step, next;

  const void* of(int64_t call) const { return static_cast<const char*>(data) + call * next; }
  // What every call's address is a multiple of.
  uint32_t alignment() const {
    constexpr uintptr_t kMost = 256;
    const auto bits = reinterpret_cast<uintptr_t>(data) | static_cast<uintptr_t>(next) | kMost;
    return static_cast<uint32_t>(bits & (~bits + 1));
  }
};

// A product that the library is ready to run: its descriptor, its layouts and the algorithm.
class CublasLtProduct {
 public:
  // `tf32`: f32 operands are rounded to TF32.
  CublasLtProduct(const Lt& lib, const GemmProblem& p, bool tf32)
      : lib_(lib), p_(p), calls_(p), tf32_(tf32) {}

  // On `device`, which must be current.
  Status describe(int device, size_t workspace);
  Status list(std::vector<cublaslt::Algorithm>* out);
  // The one of this name, or the first.
  Status choose(const std::string& asked);
  std::string choice() const { return cublaslt::name_of(lib_, algorithm_); }
  Status launch(const LaunchContext& ctx) const;

 private:
  Status describe_epilogue();
  template <class Pointer>
  Operand operand(const Matrices<Pointer>& matrices) const {
    const auto size = static_cast<int64_t>(dtype_size(p_.dtype));
    const int64_t next = calls_.count > 1 ? calls_.next(matrices) * size : 0;
    return {matrices.data, matrices.leading, calls_.step(matrices), next};
  }
  Status place(Owned* layout, int64_t rows, int64_t columns, const Operand& operand);
  template <class Value>
  Status set(int attribute, const Value& value) {
    return cublaslt::check(lib_, lib_.set_descriptor(descriptor_.object, attribute, &value, sizeof value),
                           "MatmulDescSetAttribute");
  }

  const Lt& lib_;
  const GemmProblem p_;
  const LibraryCalls calls_;
  const bool tf32_;
  Object handle_ = nullptr;
  Owned descriptor_{lib_.destroy_descriptor};
  Owned a_{lib_.destroy_layout}, b_{lib_.destroy_layout}, z_{lib_.destroy_layout};
  cublaslt::Algorithm algorithm_{};
  size_t workspace_ = 0;
};

Status CublasLtProduct::describe_epilogue() {
  const bool is_f64 = p_.dtype == DType::F64;
  const cublaslt::ComputeType compute = is_f64  ? cublaslt::kCompute64F
                                        : tf32_ ? cublaslt::kCompute32FFastTF32
                                                : cublaslt::kCompute32F;
  AICF_TRY(cublaslt::check(
      lib_, lib_.create_descriptor(&descriptor_.object, compute, is_f64 ? cublaslt::kF64 : cublaslt::kF32),
      "MatmulDescCreate"));
  AICF_TRY(set(cublaslt::kTransA, int32_t{p_.trans_b ? cublaslt::kTransposed : cublaslt::kAsItIs}));
  AICF_TRY(set(cublaslt::kTransB, int32_t{p_.trans_a ? cublaslt::kTransposed : cublaslt::kAsItIs}));
  const bool relu = p_.act == Act::Relu;
  if (p_.bias || relu) {
    const uint32_t epilogue = !p_.bias ? cublaslt::kRelu : relu ? cublaslt::kReluBias : cublaslt::kBias;
    AICF_TRY(set(cublaslt::kEpilogue, epilogue));
  }
  return p_.bias ? set(cublaslt::kBiasPointer, p_.bias) : Status::ok();
}

Status CublasLtProduct::place(Owned* layout, int64_t rows, int64_t columns, const Operand& operand) {
  AICF_TRY(
      cublaslt::check(lib_,
                      lib_.create_layout(&layout->object, data_type(p_.dtype), static_cast<uint64_t>(rows),
                                         static_cast<uint64_t>(columns), operand.leading),
                      "MatrixLayoutCreate"));
  if (calls_.batch == 1) return Status::ok();
  const auto count = static_cast<int32_t>(calls_.batch);
  AICF_TRY(cublaslt::check(lib_, lib_.set_layout(layout->object, cublaslt::kBatchCount, &count, sizeof count),
                           "MatrixLayoutSetAttribute"));
  return cublaslt::check(
      lib_, lib_.set_layout(layout->object, cublaslt::kBatchStride, &operand.step, sizeof operand.step),
      "MatrixLayoutSetAttribute");
}

// Those that the library's heuristic lists for these addresses, the best first.
Status CublasLtProduct::list(std::vector<cublaslt::Algorithm>* out) {
  Owned preference{lib_.destroy_preference};
  AICF_TRY(cublaslt::check(lib_, lib_.create_preference(&preference.object), "MatmulPreferenceCreate"));
  const auto prefer = [&](int attribute, auto value) {
    return cublaslt::check(lib_, lib_.set_preference(preference.object, attribute, &value, sizeof value),
                           "MatmulPreferenceSetAttribute");
  };
  AICF_TRY(prefer(cublaslt::kMaxWorkspace, uint64_t{workspace_}));
  AICF_TRY(prefer(cublaslt::kReductionMask, cublaslt::kReduceInComputeType));
  int attribute = cublaslt::kAlignmentOfA;
  for (const Operand& each : {operand(p_.b), operand(p_.a), operand(p_.out), operand(p_.out)})
    AICF_TRY(prefer(attribute++, each.alignment()));
  constexpr int kMost = 8;
  cublaslt::Heuristic listed[kMost] = {};
  int found = 0;
  const int status = lib_.heuristic(handle_, descriptor_.object, a_.object, b_.object, z_.object, z_.object,
                                    preference.object, kMost, listed, &found);
  for (int i = 0; status == 0 && i < found; ++i)
    if (listed[i].status == 0) out->push_back(listed[i].algorithm);
  if (!out->empty()) return Status::ok();
  return Status::unsupported("cuBLASLt " + std::to_string(lib_.version()) +
                             " has no algorithm for m = " + std::to_string(p_.m) +
                             ", n = " + std::to_string(p_.n) + ", k = " + std::to_string(p_.k) +
                             ", batch = " + std::to_string(calls_.batch) + " of " + dtype_name(p_.dtype) +
                             "; make the plan for a target without +cublaslt");
}

Status CublasLtProduct::choose(const std::string& asked) {
  std::vector<cublaslt::Algorithm> listed;
  AICF_TRY(list(&listed));
  std::string names;
  for (const cublaslt::Algorithm& algorithm : listed) {
    const std::string name = cublaslt::name_of(lib_, algorithm);
    if (asked.empty() || name == asked) {
      algorithm_ = algorithm;
      return Status::ok();
    }
    names += (names.empty() ? "[" : ", [") + name + "]";
  }
  return Status::unsupported("cuBLASLt " + std::to_string(lib_.version()) + " cannot choose [" + asked +
                             "] for these operands; it can choose " + names);
}

Status CublasLtProduct::describe(int device, size_t workspace) {
  workspace_ = workspace;
  AICF_TRY(handle_of(lib_, device, &handle_));
  AICF_TRY(describe_epilogue());
  // Rows and columns of the matrices in memory, as the library counts them.
  AICF_TRY(p_.trans_b ? place(&a_, p_.k, p_.n, operand(p_.b)) : place(&a_, p_.n, p_.k, operand(p_.b)));
  AICF_TRY(p_.trans_a ? place(&b_, p_.m, p_.k, operand(p_.a)) : place(&b_, p_.k, p_.m, operand(p_.a)));
  return place(&z_, p_.n, p_.m, operand(p_.out));
}

Status CublasLtProduct::launch(const LaunchContext& ctx) const {
  const double one = 1, zero = 0;
  const float one_f32 = 1, zero_f32 = 0;
  const bool is_f64 = p_.dtype == DType::F64;
  const void* alpha = is_f64 ? static_cast<const void*>(&one) : &one_f32;
  const void* beta = is_f64 ? static_cast<const void*>(&zero) : &zero_f32;
  const Operand a = operand(p_.a), b = operand(p_.b), out = operand(p_.out);
  for (int64_t call = 0; call < calls_.count; ++call) {
    void* z = const_cast<void*>(out.of(call));
    AICF_TRY(cublaslt::check(
        lib_,
        lib_.multiply(handle_, descriptor_.object, alpha, b.of(call), a_.object, a.of(call), b_.object, beta,
                      z, z_.object, z, z_.object, &algorithm_, ctx.workspace, workspace_, ctx.stream),
        "Matmul"));
  }
  return Status::ok();
}

class CublasLtLaunch : public LaunchState {
 public:
  CublasLtLaunch(const char* id, std::unique_ptr<const CublasLtProduct> product, bool asked)
      : LaunchState(id, product->choice(), asked), product_(std::move(product)) {}
  Status launch(const LaunchContext& ctx) const override { return product_->launch(ctx); }

 private:
  const std::unique_ptr<const CublasLtProduct> product_;
};

}  // namespace

template <bool TF32>
Status prepare_cublaslt(const KernelVariant& self, const OpDesc& op, const std::string& asked,
                        LaunchPointer* out) {
  const Lt* lib = cublaslt::library();
  if (!lib) return Status::unsupported(std::string(self.name) + " " + cublaslt::kMissing);
  const GemmProblem p = gemm_problem(op);
  cudaPointerAttributes memory = {};
  AICF_CUDA_TRY(cudaPointerGetAttributes(&memory, p.out.data));
  const CurrentDevice current(memory.device);
  auto product = std::make_unique<CublasLtProduct>(*lib, p, TF32);
  AICF_TRY(product->describe(memory.device, cublaslt_workspace(op)));
  AICF_TRY(product->choose(asked));
  *out = std::make_shared<CublasLtLaunch>(self.name, std::move(product), !asked.empty());
  return Status::ok();
}

template <bool TF32>
Status choices_of_cublaslt(const OpDesc& op, std::vector<std::string>* out) {
  const Lt* lib = cublaslt::library();
  if (!lib) return Status::unsupported(cublaslt::kMissing);
  int device = 0;
  AICF_CUDA_TRY(cudaGetDevice(&device));
  CublasLtProduct product(*lib, gemm_problem(op), TF32);
  AICF_TRY(product.describe(device, cublaslt_workspace(op)));
  std::vector<cublaslt::Algorithm> listed;
  AICF_TRY(product.list(&listed));
  for (const cublaslt::Algorithm& algorithm : listed) out->push_back(cublaslt::name_of(*lib, algorithm));
  return Status::ok();
}

template Status prepare_cublaslt<false>(const KernelVariant&, const OpDesc&, const std::string&,
                                        LaunchPointer*);
template Status prepare_cublaslt<true>(const KernelVariant&, const OpDesc&, const std::string&,
                                       LaunchPointer*);
template Status choices_of_cublaslt<false>(const OpDesc&, std::vector<std::string>*);
template Status choices_of_cublaslt<true>(const OpDesc&, std::vector<std::string>*);

}  // namespace aicf
