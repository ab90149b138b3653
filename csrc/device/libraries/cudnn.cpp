#include "device/libraries/cudnn.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "device/libraries/open.h"

namespace aicf::cudnn {
namespace {

template <class Function>
bool find(void* library, const char* name, Function** out) {
  return find_function(library, std::string("cudnn") + name, out);
}

std::optional<Library> load() {
  void* opened = open_library({"libcudnn.so.9"}, "AICF_CUDNN");
  if (!opened) return std::nullopt;
  Library lib{};
  const bool whole =
      find(opened, "GetVersion", &lib.version) && find(opened, "GetErrorString", &lib.status_name) &&
      find(opened, "Create", &lib.create) && find(opened, "SetStream", &lib.set_stream) &&
      find(opened, "BackendCreateDescriptor", &lib.create_descriptor) &&
      find(opened, "BackendDestroyDescriptor", &lib.destroy_descriptor) &&
      find(opened, "BackendFinalize", &lib.finalize) && find(opened, "BackendSetAttribute", &lib.set) &&
      find(opened, "BackendGetAttribute", &lib.get) && find(opened, "BackendExecute", &lib.execute);
  if (!whole) return std::nullopt;
  return lib;
}

enum HeuristicMode { kFallback = 2, kModeA = 3 };
enum NumericalNote {
  kTensorCore = 0,
  kDownConverts = 1,
  kReducedReduction = 2,
  kFft = 3,
  kNondeterministic = 4,
  kWinograd = 5,
  kNotes = 10
};

Status read_notes(const Descriptor& engine, const Rules& rules, bool* allowed, bool* tensor_cores) {
  int notes[kNotes] = {};
  int64_t found = 0;
  AICF_TRY(engine.get_all(kEngineNotes, kNumericalNoteType, kNotes, &found, notes));
  *allowed = true;
  *tensor_cores = false;
  for (int64_t i = 0; i < found; ++i) {
    const bool refused = notes[i] == kNondeterministic || notes[i] == kFft || notes[i] == kWinograd ||
                         notes[i] == kReducedReduction || notes[i] == kDownConverts;
    if (refused || (notes[i] == kTensorCore && !rules.tensor_cores)) *allowed = false;
    if (notes[i] == kTensorCore) *tensor_cores = true;
  }
  return Status::ok();
}

// An engine with its knobs, not made ready.
struct Candidate {
  Descriptor configuration;
  std::string name;
  bool tensor_cores;
};

Status name_of(const Descriptor& configuration, const Descriptor& engine, std::string* out) {
  int64_t index = 0;
  AICF_TRY(engine.get(kEngineIndex, kIntType, &index));
  *out = "engine " + std::to_string(index);
  constexpr int64_t kMostKnobs = 64;
  std::vector<Descriptor> knobs;
  std::vector<Object> objects;
  for (int64_t i = 0; i < kMostKnobs; ++i) {
    knobs.emplace_back(kKnobChoice);
    objects.push_back(knobs.back().object());
  }
  int64_t found = 0;
  AICF_TRY(configuration.get_all(kKnobChoices, kDescriptorType, kMostKnobs, &found, objects.data()));
  for (int64_t i = 0; i < found; ++i) {
    int knob = 0;
    int64_t value = 0;
    AICF_TRY(knobs[i].get(kChosenKnob, kKnobType, &knob));
    AICF_TRY(knobs[i].get(kChosenValue, kIntType, &value));
    *out += ", knob " + std::to_string(knob) + " = " + std::to_string(value);
  }
  return Status::ok();
}

// What the heuristics list, the best first, then what always works; without those that the rules refuse.
Status candidates(const Descriptor& graph, const Rules& rules, std::vector<Candidate>* out) {
  constexpr int64_t kMost = 64;
  for (const int mode : {kModeA, kFallback}) {
    const Descriptor heuristics(kHeuristics);
    AICF_TRY(heuristics.set(kHeuristicGraph, graph));
    AICF_TRY(heuristics.set(kHeuristicMode, kHeuristicModeType, &mode));
    if (!heuristics.finalize("heuristics").is_ok()) continue;
    std::vector<Descriptor> configurations;
    std::vector<Object> objects;
    for (int64_t i = 0; i < kMost; ++i) {
      configurations.emplace_back(kEngineConfiguration);
      objects.push_back(configurations.back().object());
    }
    int64_t found = 0;
    AICF_TRY(heuristics.get_all(kHeuristicResults, kDescriptorType, kMost, &found, objects.data()));
    for (int64_t i = 0; i < found; ++i) {
      const Descriptor engine(kEngine);
      Object object = engine.object();
      int64_t one = 0;
      AICF_TRY(configurations[i].get_all(kConfiguredEngine, kDescriptorType, 1, &one, &object));
      bool allowed = false, tensor_cores = false;
      AICF_TRY(read_notes(engine, rules, &allowed, &tensor_cores));
      if (!allowed) continue;
      std::string name;
      AICF_TRY(name_of(configurations[i], engine, &name));
      out->push_back({std::move(configurations[i]), std::move(name), tensor_cores});
    }
  }
  if (!rules.tensor_cores_first) return Status::ok();
  std::stable_partition(out->begin(), out->end(), [](const Candidate& c) { return c.tensor_cores; });
  return Status::ok();
}

// Refused where the engine does not take the graph, or takes more memory.
Status make_ready(Object handle, const Candidate& candidate, const Rules& rules, Plan* out) {
  Plan plan;
  plan.descriptor = Descriptor(kExecutionPlan);
  plan.name = candidate.name;
  AICF_TRY(plan.descriptor.set(kPlanHandle, kHandleType, &handle));
  AICF_TRY(plan.descriptor.set(kPlanConfiguration, candidate.configuration));
  AICF_TRY(plan.descriptor.finalize("execution plan"));
  int64_t workspace = 0;
  AICF_TRY(plan.descriptor.get(kPlanWorkspace, kIntType, &workspace));
  if (static_cast<size_t>(workspace) > rules.workspace)
    return Status::unsupported("needs " + std::to_string(workspace) + " bytes of workspace");
  plan.workspace = static_cast<size_t>(workspace);
  *out = std::move(plan);
  return Status::ok();
}

std::string versioned() { return "cuDNN " + std::to_string(library()->version()); }

}  // namespace

const Library* library() {
  static const std::optional<Library> loaded = load();
  return loaded ? &*loaded : nullptr;
}

Status check(int status, const char* what) {
  if (status == 0) return Status::ok();
  return Status::device(versioned() + ": " + what + " failed: " + library()->status_name(status));
}

Descriptor::Descriptor(Kind kind) {
  if (library()->create_descriptor(kind, &object_) != 0) object_ = nullptr;
}

Descriptor::~Descriptor() {
  if (object_) (void)library()->destroy_descriptor(object_);
}

Status Descriptor::set(int attribute, Type type, const void* values, int64_t count) const {
  return check(library()->set(object_, attribute, type, count, values),
               ("attribute " + std::to_string(attribute)).c_str());
}

Status Descriptor::get(int attribute, Type type, void* value) const {
  int64_t found = 0;
  return get_all(attribute, type, 1, &found, value);
}

Status Descriptor::get_all(int attribute, Type type, int64_t most, int64_t* found, void* values) const {
  AICF_TRY(check(library()->get(object_, attribute, type, most, found, values),
                 ("reading attribute " + std::to_string(attribute)).c_str()));
  if (*found > most) *found = most;
  return Status::ok();
}

Status Descriptor::finalize(const char* what) const { return check(library()->finalize(object_), what); }

Status describe(const Tensor& tensor, Descriptor* out) {
  *out = Descriptor(kTensor);
  const int type = tensor.type;
  AICF_TRY(out->set(kTensorDataType, kDataTypeType, &type));
  AICF_TRY(out->set(kTensorShape, tensor.shape));
  AICF_TRY(out->set(kTensorStrides, tensor.strides));
  AICF_TRY(out->set(kTensorId, tensor.id));
  AICF_TRY(out->set(kTensorAlignment, tensor.alignment));
  const bool yes = true;
  if (tensor.place == Tensor::kVirtual) AICF_TRY(out->set(kTensorVirtual, kBoolType, &yes));
  if (tensor.place == Tensor::kNumber) AICF_TRY(out->set(kTensorByValue, kBoolType, &yes));
  return out->finalize("tensor");
}

Status handle_of(int device, Object* out) {
  static std::mutex mutex;
  static auto* handles = new std::map<int, Object>();
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = handles->find(device);
  if (found != handles->end()) {
    *out = found->second;
    return Status::ok();
  }
  AICF_TRY(check(library()->create(out), "create"));
  handles->emplace(device, *out);
  return Status::ok();
}

Status choose(Object handle, const Descriptor& graph, const Rules& rules, const std::string& asked,
              Plan* out) {
  std::vector<Candidate> listed;
  AICF_TRY(candidates(graph, rules, &listed));
  std::string names, why;
  for (const Candidate& candidate : listed) {
    if (!asked.empty() && candidate.name != asked) {
      names += (names.empty() ? "[" : ", [") + candidate.name + "]";
      continue;
    }
    const Status made = make_ready(handle, candidate, rules, out);
    if (made.is_ok()) return made;
    why += (why.empty() ? "" : "; ") + candidate.name + " " + made.message();
  }
  if (!asked.empty())
    return Status::unsupported(versioned() + " cannot choose [" + asked + "] for these operands" +
                               (why.empty() ? "; it lists " + names : ": " + why));
  return Status::unsupported(versioned() + " has no deterministic engine for this operation" +
                             (why.empty() ? "" : ": " + why) + "; make the plan for a target without +cudnn");
}

Status list(Object handle, const Descriptor& graph, const Rules& rules, int most,
            std::vector<std::string>* out) {
  std::vector<Candidate> listed;
  AICF_TRY(candidates(graph, rules, &listed));
  for (const Candidate& candidate : listed) {
    Plan plan;
    if (static_cast<int>(out->size()) < most && make_ready(handle, candidate, rules, &plan).is_ok())
      out->push_back(candidate.name);
  }
  return Status::ok();
}

Status engine_of(const std::string& key, const std::string& asked,
                 const std::function<Status(Described*)>& describe, Engine* out) {
  static std::mutex mutex;
  static auto* engines = new std::map<std::string, Engine>();
  const std::lock_guard<std::mutex> lock(mutex);
  Engine& engine = (*engines)[key + " " + asked];
  if (!engine) {
    Described described;
    AICF_TRY(describe(&described));
    Plan plan;
    AICF_TRY(choose(described.handle, described.graph, described.rules, asked, &plan));
    engine = std::make_shared<const Plan>(std::move(plan));
  }
  *out = engine;
  return Status::ok();
}

Status execute(Object handle, const Plan& plan, const std::vector<int64_t>& ids,
               const std::vector<void*>& pointers, void* workspace, void* stream) {
  const Descriptor pack(kVariantPack);
  const auto count = static_cast<int64_t>(ids.size());
  AICF_TRY(pack.set(kPackIds, ids));
  AICF_TRY(pack.set(kPackPointers, kPointerType, pointers.data(), count));
  AICF_TRY(pack.set(kPackWorkspace, kPointerType, &workspace));
  AICF_TRY(pack.finalize("variant pack"));
  static std::mutex mutex;  // a handle has one stream at a time
  const std::lock_guard<std::mutex> lock(mutex);
  AICF_TRY(check(library()->set_stream(handle, stream), "set stream"));
  return check(library()->execute(handle, plan.descriptor.object(), pack.object()), "execute");
}

}  // namespace aicf::cudnn
