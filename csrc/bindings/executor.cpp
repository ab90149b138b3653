#include "runtime/executor.h"

#include "bindings/bindings.h"

namespace aicf::bindings {
namespace {

using ArenaPointer = std::shared_ptr<Arena>;

// Asked between two replays. True leaves the signal handler's exception set.
bool interrupted() {
  py::gil_scoped_acquire acquire;
  return PyErr_CheckSignals() != 0;
}

ArenaPointer make_arena(const std::string& device, py::handle nbytes, bool visible) {
  ArenaPointer arena;
  raise_if(Arena::create(device, parse_int(nbytes, "nbytes"), visible, &arena));
  return arena;
}

void write(Arena& arena, int64_t offset, const py::buffer& source, uintptr_t stream) {
  Py_buffer view;
  if (PyObject_GetBuffer(source.ptr(), &view, PyBUF_SIMPLE) != 0) throw py::error_already_set();
  Status status = Status::ok();
  {
    py::gil_scoped_release release;
    status = arena.copy_in(offset, view.buf, view.len, as_stream(stream));
  }
  PyBuffer_Release(&view);
  raise_if(status);
}

py::bytes read(const Arena& arena, int64_t offset, int64_t nbytes, uintptr_t stream) {
  raise_if(arena.check_range("a read", offset, nbytes));
  py::bytes result(nullptr, static_cast<size_t>(nbytes));
  char* target = PyBytes_AS_STRING(result.ptr());
  without_gil([&] { return arena.copy_out(offset, target, nbytes, as_stream(stream)); });
  return result;
}

py::buffer_info as_buffer(Arena& arena) {
  if (arena.device().type() != DeviceType::Cpu)
    throw py::buffer_error("an arena on " + arena.device_name() +
                           " has no buffer on the host; use read() and write()");
  return {reinterpret_cast<uint8_t*>(arena.data()), arena.nbytes()};
}

SlotSpec parse_slot(py::handle value) {
  const Py_ssize_t parts = PyTuple_Check(value.ptr()) ? PyTuple_GET_SIZE(value.ptr()) : 0;
  if (parts != 4 && parts != 5)
    raise_if(Status::invalid("a slot is a tuple (arena, offset, dtype, shape), with strides behind it where "
                             "it has gaps, got " +
                             std::string(py::repr(value))),
             Subject::Plan);
  const auto slot = py::reinterpret_borrow<py::tuple>(value);
  SlotSpec spec{py::str(slot[0]), parse_int(slot[1], "offset"), parse_dtype(py::str(slot[2])),
                parse_ints(slot[3], "shape"), std::nullopt};
  if (parts == 5) spec.strides = parse_ints(slot[4], "strides");
  return spec;
}

std::vector<SlotSpec> parse_slots(const py::object& values) {
  std::vector<SlotSpec> slots;
  for (const py::handle value : values) slots.push_back(parse_slot(value));
  return slots;
}

LaunchSpec parse_launch(const py::dict& row, size_t position) {
  for (const char* key : {"op", "kernel_id", "inputs", "outputs", "counts", "attrs"})
    if (!row.contains(key))
      raise_if(Status::invalid("a launch needs the key '" + std::string(key) + "'"), Subject::Plan);
  LaunchSpec spec;
  if (row.contains("symbol")) spec.symbol = py::str(row["symbol"]);
  if (row.contains("origin")) spec.origin = py::str(row["origin"]);
  if (row.contains("after"))
    for (const int64_t position : parse_ints(row["after"], "after"))
      spec.after.push_back(static_cast<size_t>(position));
  if (row.contains("branch")) spec.branch = parse_int(row["branch"], "branch");
  if (row.contains("first_step_only")) spec.first_step_only = row["first_step_only"].cast<bool>();
  spec.schema = &parse_schema(row["op"]);
  spec.kernel_id = py::str(row["kernel_id"]);
  spec.inputs = parse_slots(row["inputs"]);
  spec.outputs = parse_slots(row["outputs"]);
  if (!row["counts"].is_none()) {
    OpDesc counted;  // only for its counts
    parse_counts(row["counts"], &counted, Subject::Plan);
    spec.input_counts = counted.input_counts;
    spec.output_counts = counted.output_counts;
  }
  const Status status = read_attrs(*spec.schema, row["attrs"], &spec.attrs);
  if (!status.is_ok()) raise_if(status.at(spec.str(position)), Subject::Plan);
  if (row.contains("workspace") && !row["workspace"].is_none()) {
    const auto workspace = row["workspace"].cast<py::tuple>();
    if (workspace.size() != 3)
      raise_if(Status::invalid("a workspace is a tuple (arena, offset, nbytes)"), Subject::Plan);
    spec.workspace = WorkspaceSpec{py::str(workspace[0]), parse_int(workspace[1], "offset"),
                                   parse_int(workspace[2], "nbytes")};
  }
  if (row.contains("predicate") && !row["predicate"].is_none()) spec.predicate = parse_slot(row["predicate"]);
  if (row.contains("code") && !row["code"].is_none()) spec.code = row["code"].cast<CodePointer>();
  return spec;
}

using SessionPointer = std::shared_ptr<Session>;

PlaceSpec parse_place(py::handle value) {
  const auto place = value.cast<py::tuple>();
  if (place.size() != 3)
    raise_if(Status::invalid("an input, or the loss, is a tuple (arena, offset, nbytes)"), Subject::Plan);
  return {py::str(place[0]), parse_int(place[1], "offset"), parse_int(place[2], "nbytes")};
}

std::unique_ptr<Executor> make_executor(const std::string& device, const ArenaMap& arenas,
                                        const std::vector<py::dict>& rows, py::handle status,
                                        const py::list& inputs, SessionPointer session, int64_t index,
                                        py::handle loss) {
  for (const auto& [name, arena] : arenas)
    if (!arena) raise_if(Status::invalid("arena '" + name + "' is None"), Subject::Plan);
  std::vector<LaunchSpec> launches;
  for (const py::dict& row : rows) launches.push_back(parse_launch(row, launches.size()));
  std::vector<PlaceSpec> places;
  for (const py::handle value : inputs) places.push_back(parse_place(value));
  std::optional<PlaceSpec> loss_place;
  if (!loss.is_none()) loss_place = parse_place(loss);
  std::unique_ptr<Executor> executor;
  std::optional<SlotSpec> status_slot;
  if (!status.is_none()) status_slot = parse_slot(status);
  raise_if(Executor::create(device, arenas, launches, status_slot, places, loss_place,
                            {std::move(session), index}, &executor),
           Subject::Plan);
  return executor;
}

Executor::Batch parse_batch(const py::tuple& addresses) {
  Executor::Batch batch;
  for (const py::handle address : addresses) batch.push_back(parse_address(address, "a batch address"));
  return batch;
}

std::vector<std::string> trace(Executor& executor, bool choices) {
  std::vector<std::string> names;
  raise_if(executor.trace(choices, &names));
  return names;
}

std::vector<py::dict> graph(Executor& executor) {
  std::vector<GraphNode> nodes;
  raise_if(executor.graph(&nodes));
  std::vector<py::dict> rows;
  for (const GraphNode& node : nodes) {
    py::dict row;
    row["kind"] = node.kind;
    row["function"] = node.function;
    row["launch"] = node.launch;
    row["after"] = py::tuple(py::cast(node.after));
    rows.push_back(std::move(row));
  }
  return rows;
}

Timed time(Executor& executor, bool each, uintptr_t stream, const py::tuple& batch) {
  const Executor::Batch addresses = parse_batch(batch);
  Timed timed;
  without_gil([&] { return executor.time(each, addresses, as_stream(stream), &timed); });
  return timed;
}

std::vector<std::pair<std::string, double>> time_launches(Executor& executor, uintptr_t stream,
                                                          const py::tuple& batch) {
  const Timed timed = time(executor, true, stream, batch);
  std::vector<std::pair<std::string, double>> launches;
  for (size_t i = 0; i < timed.names.size(); ++i) launches.emplace_back(timed.names[i], timed.seconds[i]);
  return launches;
}

double time_step(Executor& executor, uintptr_t stream, const py::tuple& batch) {
  return time(executor, false, stream, batch).seconds.front();
}

py::dict stats(Executor& executor) {
  ExecutorStats stats;
  raise_if(executor.stats(&stats));
  py::dict result;
  result["launches_per_step"] = stats.launches_per_step;
  result["launches"] = stats.launches;
  result["runs"] = stats.runs;
  result["replays"] = stats.replays;
  result["programmatic_edges"] = stats.programmatic_edges;
  result["allocations"] = stats.memory.allocations;
  result["live_bytes"] = stats.memory.live_bytes;
  return result;
}

PyObject* enter(Session& session, PyObject* const*, Py_ssize_t) {
  raise_if(session.enter());
  Py_RETURN_NONE;
}

PyObject* leave(Session& session, PyObject* const*, Py_ssize_t) {
  session.leave();
  Py_RETURN_NONE;
}

void bind_arena(py::module_& m) {
  py::class_<Arena, ArenaPointer>(m, "Arena", py::buffer_protocol())
      .def(py::init(&make_arena), py::arg("device"), py::arg("nbytes"), py::arg("visible") = false)
      .def_property_readonly("ptr", [](const Arena& a) { return reinterpret_cast<uintptr_t>(a.data()); })
      .def_property_readonly("nbytes", &Arena::nbytes)
      .def_property_readonly("device", &Arena::device_name)
      .def_buffer(&as_buffer)
      .def("write", &write, py::arg("offset"), py::arg("data"), py::arg("stream") = 0)
      .def("read", &read, py::arg("offset"), py::arg("nbytes"), py::arg("stream") = 0)
      .def(
          "fill",
          [](Arena& a, int byte, uintptr_t stream) {
            without_gil([&] { return a.fill(byte, as_stream(stream)); });
          },
          py::arg("byte"), py::arg("stream") = 0)
      .def(
          "copy_from",
          [](Arena& a, const Arena& other, uintptr_t stream, int64_t offset, int64_t nbytes) {
            without_gil([&] { return a.copy_from(other, as_stream(stream), offset, nbytes); });
          },
          py::arg("other"), py::arg("stream") = 0, py::arg("offset") = 0, py::arg("nbytes") = -1)
      .def(
          "copy_in",
          [](Arena& a, int64_t offset, py::handle ptr, int64_t nbytes, uintptr_t stream) {
            const void* source = parse_address(ptr, "ptr");
            without_gil([&] { return a.copy_in(offset, source, nbytes, as_stream(stream)); });
          },
          py::arg("offset"), py::arg("ptr"), py::arg("nbytes"), py::arg("stream") = 0)
      .def(
          "copy_out",
          [](const Arena& a, int64_t offset, py::handle ptr, int64_t nbytes, uintptr_t stream) {
            void* target = parse_address(ptr, "ptr");
            without_gil([&] { return a.copy_out(offset, target, nbytes, as_stream(stream)); });
          },
          py::arg("offset"), py::arg("ptr"), py::arg("nbytes"), py::arg("stream") = 0);
}

}  // namespace

void bind_session(py::module_& m) {
  py::class_<Session, SessionPointer> session(m, "Session");
  session.def(py::init<const std::vector<SessionPointer>&>(), py::arg("sharing") = py::list())
      .def_readonly("active", &Session::active)
      .def_readonly("steps", &Session::steps);
  bind_directly<Session, enter>(session, "__enter__");
  bind_directly<Session, leave>(session, "__exit__");
}

void bind_executor(py::module_& m) {
  bind_arena(m);
  bind_session(m);
  py::class_<Executor>(m, "Executor")
      .def(py::init(&make_executor), py::arg("device"), py::arg("arenas"), py::arg("launches"),
           py::arg("status") = py::none(), py::arg("inputs") = py::list(), py::arg("session") = nullptr,
           py::arg("index") = 0, py::arg("loss") = py::none())
      .def(
          "load",
          [](Executor& e, const py::tuple& batch, uintptr_t stream) {
            const Executor::Batch addresses = parse_batch(batch);
            without_gil([&] { return e.load(addresses, as_stream(stream)); });
          },
          py::arg("batch"), py::arg("stream") = 0)
      .def(
          "run",
          [](Executor& e, uintptr_t stream, const py::tuple& batch) {
            const Executor::Batch addresses = parse_batch(batch);
            without_gil([&] { return e.run(addresses, as_stream(stream)); });
            return e.failed();
          },
          py::arg("stream") = 0, py::arg("batch") = py::tuple())
      .def("capture", [](Executor& e) { without_gil([&] { return e.capture(); }); })
      .def(
          "replay",
          [](Executor& e, int64_t n, uintptr_t stream, const py::tuple& batch, uintptr_t loss) {
            const Executor::Batch addresses = parse_batch(batch);
            void* const target = reinterpret_cast<void*>(loss);
            without_gil([&] { return e.replay(n, addresses, as_stream(stream), &interrupted, target); });
            return e.failed();
          },
          py::arg("n") = 1, py::arg("stream") = 0, py::arg("batch") = py::tuple(), py::arg("loss") = 0)
      .def("reset", [](Executor& e) { without_gil([&] { return e.reset(); }); })
      .def("time_launches", &time_launches, py::arg("stream") = 0, py::arg("batch") = py::tuple())
      .def("time_step", &time_step, py::arg("stream") = 0, py::arg("batch") = py::tuple())
      .def("trace", &trace, py::arg("choices") = false)
      .def("graph", &graph)
      .def("stats", &stats)
      .def_property_readonly("captured", &Executor::captured)
      .def_property_readonly("failed", &Executor::failed)
      .def_property_readonly("replayed", &Executor::replayed);
}

}  // namespace aicf::bindings
