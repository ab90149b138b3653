#include "runtime/executor.h"

#include <algorithm>
#include <chrono>

#include "runtime/fork.h"

namespace aicf {
namespace {

using Clock = std::chrono::steady_clock;
constexpr Clock::duration kInterruptInterval = std::chrono::milliseconds(50);

// From one graph to the next a GPU does nothing for about a microsecond, which shows where steps are short.
constexpr int64_t kMostSteps = 16, kMostLaunches = 256;  // of one graph

}  // namespace

// The right to use the executor, for the time of one call.
class Executor::Turn {
 public:
  explicit Turn(Executor& executor)
      : executor_(executor), held_(!executor.busy_.exchange(true, std::memory_order_acquire)) {}
  ~Turn() {
    if (held_) executor_.busy_.store(false, std::memory_order_release);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  Status granted() const {
    if (fork_generation() != executor_.fork_generation_)
      return Status::state("this step was created before fork(); create the step in the child process");
    if (!held_) return Status::state("this step is in use by another thread; wait for its call to return");
    return Status::ok();
  }

 private:
  Executor& executor_;
  const bool held_;
};

Status Executor::create(const std::string& device_name, ArenaMap arenas, const std::vector<LaunchSpec>& specs,
                        const std::optional<SlotSpec>& status_slot, const std::vector<PlaceSpec>& input_specs,
                        const std::optional<PlaceSpec>& loss_spec, Member member,
                        std::unique_ptr<Executor>* out) {
  Device* device = nullptr;
  AICF_TRY(get_device(device_name, &device));
  for (const auto& [name, arena] : arenas)
    if (&arena->device() != device)
      return Status::invalid("arena '" + name + "' is on " + arena->device_name() + ", the executor on " +
                             device_name);
  std::vector<PreparedLaunch> launches(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const Status status = prepare(specs[i], i, *device, arenas, &launches[i]);
    if (status.is_ok()) continue;
    return status.at(specs[i].str(i));
  }
  std::vector<Branched> branched;
  bool beside = false;
  for (const PreparedLaunch& launch : launches) {
    branched.push_back(launch.order);
    beside = beside || launch.order.branch != 0;
  }
  BranchOrder order;
  if (beside) AICF_TRY(BranchOrder::create(branched, &order));
  int64_t *status = nullptr, *visible = nullptr;
  if (status_slot) AICF_TRY(place_status(*status_slot, arenas, &status, &visible));
  std::vector<Place> inputs(input_specs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    AICF_TRY(find_place(input_specs[i], arenas, "the input", &inputs[i]));
  Place loss;
  if (loss_spec) AICF_TRY(find_place(*loss_spec, arenas, "the loss", &loss));
  std::unique_ptr<Upload> upload;
  AICF_TRY(device->make_upload(std::move(inputs), &upload));
  out->reset(new Executor(*device, std::move(arenas), std::move(launches), std::move(order), visible,
                          input_specs.size(), std::move(upload), loss, std::move(member)));
  return Status::ok();
}

Status Executor::find_place(const PlaceSpec& spec, const ArenaMap& arenas, const char* what, Place* out) {
  const Arena* arena = nullptr;
  AICF_TRY(find_arena(spec.arena, arenas, &arena));
  AICF_TRY(arena->check_range(what, spec.offset, spec.nbytes));
  *out = {arena->data() + spec.offset, static_cast<size_t>(spec.nbytes)};
  return Status::ok();
}

static bool has_collective(const std::vector<PreparedLaunch>& launches) {
  return std::any_of(launches.begin(), launches.end(),
                     [](const auto& l) { return l.launch->is_collective(); });
}

// Launches that know whether some of the step wait for other ranks.
static std::vector<PreparedLaunch> told_of_ranks(std::vector<PreparedLaunch> launches) {
  const bool of_ranks = has_collective(launches);
  for (PreparedLaunch& l : launches) l.context.of_ranks = of_ranks;
  return launches;
}

Executor::Executor(Device& device, ArenaMap arenas, std::vector<PreparedLaunch> launches, BranchOrder order,
                   const int64_t* status, size_t inputs, std::unique_ptr<Upload> upload, Place loss,
                   Member member)
    : device_(device),
      arenas_(std::move(arenas)),
      launches_(told_of_ranks(std::move(launches))),
      order_(std::move(order)),
      has_first_step_only_(
          std::any_of(launches_.begin(), launches_.end(), [](const auto& l) { return l.first_step_only; })),
      is_of_ranks_(has_collective(launches_)),
      status_(status),
      inputs_(inputs),
      upload_(std::move(upload)),
      loss_(loss),
      member_(std::move(member)),
      fork_generation_(fork_generation()) {
  run_trace_.reserve(launches_.size());
}

Status Executor::enqueue_one(const PreparedLaunch& l, void* stream, void* branch) {
  Node node{l.launch, l.context, &l.order.after, &l.place, branch};
  node.context.stream = stream;
  const Status status = device_.enqueue(node);
  return status.is_ok() ? status : status.at(l.place);
}

Status Executor::enqueue(void* stream, bool later, Trace* trace) {
  for (size_t position = 0; position < launches_.size(); ++position) {
    if (later && launches_[position].first_step_only) continue;
    AICF_TRY(enqueue_one(launches_[position], stream));
    trace->push_back(position);
  }
  return Status::ok();
}

Status Executor::enqueue_branches(BranchStreams& streams, bool later, Trace* trace) {
  return order_.walk(streams, [&](size_t position, void* branch) {
    if (later && launches_[position].first_step_only) return Status::ok();
    AICF_TRY(enqueue_one(launches_[position], nullptr, branch));
    trace->push_back(position);
    return Status::ok();
  });
}

Status Executor::ready(const Batch& batch, void* stream) {
  if (device_.capturing())
    return Status::state("a step cannot run while a graph is being recorded on its device; end that first");
  if (member_.session) AICF_TRY(member_.session->order(device_, stream));
  if (!batch.empty()) {
    if (batch.size() != inputs_)
      return Status::invalid("expected a batch of " + std::to_string(inputs_) + " addresses, got " +
                             std::to_string(batch.size()));
    AICF_TRY(upload_->load(batch, stream));
  }
  return Status::ok();
}

Status Executor::start(const Batch& batch, void* stream) {
  AICF_TRY(ready(batch, stream));
  if (member_.session) member_.session->active = member_.index;
  return Status::ok();
}

void Executor::count_steps(int64_t steps) {
  if (member_.session) member_.session->steps += steps;
}

Status Executor::load(const Batch& batch, void* stream) {
  const Turn turn(*this);
  AICF_TRY(turn.granted());
  return start(batch, stream);
}

Status Executor::run(const Batch& batch, void* stream) {
  const Turn turn(*this);
  AICF_TRY(turn.granted());
  AICF_TRY(start(batch, stream));
  last_trace_ = &run_trace_;
  run_trace_.clear();
  const Status status = enqueue(stream, false, &run_trace_);
  launched_ += static_cast<int64_t>(run_trace_.size());
  if (!status.is_ok()) return status;
  ++runs_;
  if (failed() == 0) count_steps(1);
  return Status::ok();
}

std::vector<std::string> Executor::names_of(const Trace& trace, bool choices) const {
  std::vector<std::string> names;
  for (const size_t position : trace) {
    const LaunchState& launch = *launches_[position].launch;
    names.push_back(choices ? launch.name() : launch.id());
  }
  return names;
}

std::vector<RecordedLaunch> Executor::recorded(const Trace& trace) const {
  std::vector<RecordedLaunch> recorded;
  std::vector<size_t> numbers(launches_.size());  // of the launch at a position, when it was recorded last
  size_t before = 0, begin = 0;                   // where the step in front begins, and this one
  for (size_t i = 0; i < trace.size(); ++i) {
    const PreparedLaunch& launch = launches_[trace[i]];
    if (i && trace[i] <= trace[i - 1]) {
      before = begin;
      begin = i;
    }
    RecordedLaunch each{launch.place, {}, launch.launch->functions(launch.context)};
    for (size_t early = before; early < begin; ++early) each.after.push_back(early);
    for (const size_t early : launch.order.after) {
      const size_t number = numbers[early];
      if (number >= begin && number < i && trace[number] == early) each.after.push_back(number);
    }
    numbers[trace[i]] = i;
    recorded.push_back(std::move(each));
  }
  return recorded;
}

Status Executor::record(int64_t steps, bool later, BranchStreams* streams, Captured* out) {
  Captured captured{nullptr, {}, steps};
  AICF_TRY(device_.begin_capture());
  Status status = Status::ok();
  for (int64_t i = 0; i < steps && status.is_ok(); ++i)
    status = streams ? enqueue_branches(*streams, later, &captured.trace)
                     : enqueue(nullptr, later, &captured.trace);
  if (!status.is_ok()) {
    device_.abort_capture();
    return Status::capture("the capture failed, nothing is recorded: " + status.message());
  }
  AICF_TRY(device_.end_capture(&captured.graph));
  AICF_TRY(match_graph(captured.graph->nodes(), recorded(captured.trace)));
  *out = std::move(captured);
  return Status::ok();
}

int64_t Executor::many_steps() const {
  if (status_ || device_.type() != DeviceType::Cuda || launches_.empty()) return 0;
  const int64_t steps = std::min(kMostSteps, kMostLaunches / static_cast<int64_t>(launches_.size()));
  return steps >= 2 ? steps : 0;
}

Status Executor::capture() {
  const Turn turn(*this);
  AICF_TRY(turn.granted());
  if (captured()) return Status::state("the step is already captured; call reset first");
  std::unique_ptr<BranchStreams> streams;  // needed no longer than the capture
  if (order_.branched()) AICF_TRY(device_.make_branches(order_.branches(), order_.events(), &streams));
  Captured first, later, many;
  AICF_TRY(record(1, false, streams.get(), &first));
  if (has_first_step_only_) AICF_TRY(record(1, true, streams.get(), &later));
  if (const int64_t steps = many_steps()) AICF_TRY(record(steps, true, streams.get(), &many));
  first_ = std::move(first);
  later_ = std::move(later);
  many_ = std::move(many);
  return Status::ok();
}

Status Executor::replay(int64_t n, const Batch& batch, void* stream, bool (*interrupted)(), void* loss) {
  const Turn turn(*this);
  AICF_TRY(turn.granted());
  if (!captured()) return Status::state("there is nothing to replay; call capture first");
  if (n < 0) return Status::invalid("a step is replayed 0 or more times, got " + std::to_string(n));
  if (loss && !loss_.data) return Status::invalid("this executor was made without a place of the loss");
  AICF_TRY(start(batch, stream));
  if (n) last_trace_ = &first_.trace;
  replayed_ = 0;
  Clock::time_point asked = n > 1 ? Clock::now() : Clock::time_point{};
  while (replayed_ < n) {
    const bool whole = has_first_step_only_ && replayed_ == 0,
               many = many_.graph && n - replayed_ >= many_.steps;
    const Captured& next = whole ? first_ : many ? many_ : later_.graph ? later_ : first_;
    AICF_TRY(next.graph->launch(stream));
    launched_ += static_cast<int64_t>(next.trace.size());
    replays_ += next.steps;
    replayed_ += next.steps;
    if (failed() != 0 && !is_of_ranks_) break;
    count_steps(next.steps);
    if (replayed_ == n || Clock::now() - asked < kInterruptInterval) continue;
    if (interrupted())
      return Status::state("interrupted after " + std::to_string(replayed_) + " of " + std::to_string(n) +
                           " replays");
    asked = Clock::now();
  }
  return loss ? device_.copy(loss, loss_.data, loss_.bytes, stream) : Status::ok();
}

Status Executor::time(bool each, const Batch& batch, void* stream, Timed* out) {
  const Turn turn(*this);
  AICF_TRY(turn.granted());
  AICF_TRY(ready(batch, stream));
  Trace trace;
  trace.reserve(launches_.size());
  std::unique_ptr<Marks> marks;
  AICF_TRY(device_.make_marks(each ? launches_.size() : 1, &marks));
  AICF_TRY(marks->begin(launches_.size() * (each ? 2 : 1), stream));
  if (each) {
    for (size_t position = 0; position < launches_.size(); ++position) {
      AICF_TRY(enqueue_one(launches_[position], stream));
      AICF_TRY(marks->mark(stream));
      trace.push_back(position);
    }
  } else {
    AICF_TRY(enqueue(stream, false, &trace));
    AICF_TRY(marks->mark(stream));
  }
  AICF_TRY(marks->read(&out->seconds));
  out->names = names_of(trace, true);
  return Status::ok();
}

Status Executor::reset() {
  const Turn turn(*this);
  AICF_TRY(turn.granted());
  for (Captured* captured : {&first_, &later_, &many_}) *captured = Captured{};
  return Status::ok();
}

Status Executor::graph(std::vector<GraphNode>* out) {
  const Turn turn(*this);
  AICF_TRY(turn.granted());
  if (!captured()) return Status::state("nothing is captured; call capture first");
  *out = first_.graph->nodes();
  for (GraphNode& node : *out) node.launch = first_.trace[node.launch];
  return Status::ok();
}

Status Executor::trace(bool choices, std::vector<std::string>* out) {
  const Turn turn(*this);
  AICF_TRY(turn.granted());
  *out = names_of(*last_trace_, choices);
  return Status::ok();
}

Status Executor::stats(ExecutorStats* out) {
  const Turn turn(*this);
  AICF_TRY(turn.granted());
  const auto launches = static_cast<int64_t>(launches_.size());
  const size_t edges = captured() ? first_.graph->programmatic_edges() : 0;
  *out = {launches, launched_, runs_, replays_, static_cast<int64_t>(edges), memory_stats(device_)};
  return Status::ok();
}

}  // namespace aicf
