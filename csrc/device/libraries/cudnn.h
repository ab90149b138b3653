// cuDNN's backend interface, found at run time: nothing of it is needed to build. Operation graphs are made
// of descriptors; what we need of its C interface is declared here with the numbers of cudnn_graph.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "op/status.h"

namespace aicf::cudnn {

enum DataType { kF32 = 0, kF64 = 1, kF16 = 2, kInt32 = 4, kBF16 = 9, kBool = 11 };
enum Kind {
  kPointwise = 0,
  kConvolution = 1,
  kEngine = 2,
  kEngineConfiguration = 3,
  kHeuristics = 4,
  kExecutionPlan = 5,
  kKnobChoice = 7,
  kConvolutionForward = 10,
  kConvolutionWeightGradient = 11,
  kConvolutionInputGradient = 12,
  kPointwiseOperation = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kProduct = 18,
  kProductOperation = 19,
  kReduction = 21,
  kReductionOperation = 22,
  kReshapeOperation = 31,
};
enum Type {
  kHandleType = 0,
  kDataTypeType = 1,
  kBoolType = 2,
  kIntType = 3,
  kFloatType = 4,
  kPointerType = 6,
  kConvolutionModeType = 7,
  kHeuristicModeType = 8,
  kKnobType = 9,
  kNanType = 10,
  kNumericalNoteType = 11,
  kPointwiseModeType = 14,
  kDescriptorType = 15,
  kReducerType = 18,
};
enum Attribute {
  kPointwiseMode = 0,
  kPointwiseCompute = 1,
  kPointwiseNan = 2,
  kPointwiseAxis = 9,
  kComputeType = 100,
  kConvolutionMode = 101,
  kDilations = 102,
  kStrides = 103,
  kPaddingsAfter = 104,
  kPaddingsBefore = 105,
  kSpatialDims = 106,
  kHeuristicMode = 200,
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kConfiguredEngine = 300,
  kKnobChoices = 302,
  kPlanHandle = 400,
  kPlanConfiguration = 401,
  kPlanWorkspace = 402,
  kChosenKnob = 600,
  kChosenValue = 601,
  kPointwiseOf = 750,
  kPointwiseX = 751,
  kPointwiseB = 752,
  kPointwiseY = 753,
  kPointwiseT = 758,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorDataType = 901,
  kTensorShape = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kTensorVirtual = 907,
  kTensorByValue = 908,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineIndex = 1301,
  kEngineNotes = 1303,
  kProductCompute = 1500,
  kProductA = 1520,
  kProductB = 1521,
  kProductC = 1522,
  kProductOf = 1523,
  kReducer = 1600,
  kReductionCompute = 1601,
  kReductionX = 1610,
  kReductionY = 1611,
  kReductionOf = 1612,
  kReshapeX = 2200,
  kReshapeY = 2201,
};
// Attributes of the three convolutions, counted from the first one of each.
constexpr int kForwardAttributes = 700, kInputGradientAttributes = 706, kWeightGradientAttributes = 712;
enum ConvolutionAttribute {
  kAlpha = 0,
  kBeta = 1,
  kConvolutionOf = 2,
  kWeights = 3,
  kInput = 4,
  kOutput = 5
};

using Object = void*;

struct Library {
  size_t (*version)();
  const char* (*status_name)(int);
  int (*create)(Object*);
  int (*set_stream)(Object handle, void* stream);
  int (*create_descriptor)(int kind, Object*);
  int (*destroy_descriptor)(Object);
  int (*finalize)(Object);
  int (*set)(Object, int attribute, int type, int64_t count, const void*);
  int (*get)(Object, int attribute, int type, int64_t wanted, int64_t* found, void*);
  int (*execute)(Object handle, Object plan, Object pack);
};

// Found as open.h says; null without one. The same for as long as the process lives.
const Library* library();
inline bool available() { return library() != nullptr; }
constexpr const char* kMissing =
    "needs cuDNN: libcudnn.so.9, which torch for CUDA brings, and no AICF_CUDNN=0 in the environment; or "
    "make "
    "the plan for a target without +cudnn";

Status check(int status, const char* what);

// A descriptor of the library, which must be loaded.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(Kind kind);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }

  Object object() const { return object_; }
  Status set(int attribute, Type type, const void* values, int64_t count = 1) const;
  Status set(int attribute, int64_t value) const { return set(attribute, kIntType, &value); }
  Status set(int attribute, const std::vector<int64_t>& values) const {
    return set(attribute, kIntType, values.data(), static_cast<int64_t>(values.size()));
  }
  Status set(int attribute, const Descriptor& value) const {
    return set(attribute, kDescriptorType, &value.object_);
  }
  Status get(int attribute, Type type, void* value) const;
  // At most `most`; of descriptors, into those that exist.
  Status get_all(int attribute, Type type, int64_t most, int64_t* found, void* values) const;
  Status finalize(const char* what) const;

 private:
  Object object_ = nullptr;
};

struct Tensor {
  int64_t id;
  DataType type;
  std::vector<int64_t> shape, strides;  // [N, C, spatial...], whatever the layout
  int64_t alignment;                    // bytes
  // Virtual: a value between two operations, which has no memory. Number: one element in the host's memory,
  // which execute() reads.
  enum Place { kMemory, kVirtual, kNumber } place = kMemory;
};
Status describe(const Tensor& tensor, Descriptor* out);

// How an operation graph may be computed. Engines whose bits may differ from run to run are never taken, nor
// those that transform the operands to other ones (Winograd, FFT), which round more.
struct Rules {
  bool tensor_cores;        // false: products of f32 are those of f32, not TF32
  bool tensor_cores_first;  // of what the heuristics list
  size_t workspace;         // bytes
};

// An engine, made ready for a graph.
struct Plan {
  Descriptor descriptor;
  std::string name;  // what decides its bits: "engine 14, knob 12 = 1, ..."
  size_t workspace = 0;
};

// The handle of a device, which must be current; one for each, for as long as the process lives.
Status handle_of(int device, Object* out);
// The engine of this name, or the first that takes the graph.
Status choose(Object handle, const Descriptor& graph, const Rules& rules, const std::string& asked,
              Plan* out);
// The names of those that take it, the first `most`, the best first.
Status list(Object handle, const Descriptor& graph, const Rules& rules, int most,
            std::vector<std::string>* out);

// A graph with what it is made of, ready to be asked.
struct Described {
  Object handle = nullptr;
  Descriptor graph;
  std::vector<Descriptor> parts;
  Rules rules{};
};
// choose(), once for each `key`, which names all that the engine depends on: it takes long to make one ready.
using Engine = std::shared_ptr<const Plan>;
Status engine_of(const std::string& key, const std::string& asked,
                 const std::function<Status(Described*)>& describe, Engine* out);

// Enqueues on `stream`. Ids and pointers of the graph's tensors belong together.
Status execute(Object handle, const Plan& plan, const std::vector<int64_t>& ids,
               const std::vector<void*>& pointers, void* workspace, void* stream);

}  // namespace aicf::cudnn
