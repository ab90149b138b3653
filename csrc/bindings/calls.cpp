#include "bindings/bindings.h"
#include "op/registry.h"
#include "op/validate.h"
#include "runtime/dispatch.h"
#include "runtime/recording.h"

namespace aicf::bindings {
namespace {

// A description that keeps the tensor it describes alive, where one was given.
struct DescribedTensor {
  TensorDesc desc;
  py::object owner;
};

DescribedTensor make_described(py::handle data, const std::string& dtype, py::handle shape,
                               py::handle strides, const std::string& device, py::object owner) {
  TensorDesc desc;
  raise_if(make_tensor(parse_dtype(dtype), parse_ints(shape, "shape"), &desc));
  if (!strides.is_none()) raise_if(set_strides(parse_ints(strides, "strides"), &desc));
  int index = 0;
  raise_if(parse_device(device, &desc.device, &index));
  desc.device_index = static_cast<int16_t>(index);
  device_named(device);  // refuses what is not there
  desc.data = parse_address(data, "data");
  desc.alignment = address_alignment(desc.data);
  return {desc, std::move(owner)};
}

py::tuple as_tuple(const int64_t* values, int32_t count) {
  py::tuple tuple(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) tuple[static_cast<size_t>(i)] = values[i];
  return tuple;
}

// Shared with a recorded graph, which may be freed by any thread, and even after the interpreter.
std::shared_ptr<void> keep(const py::object& owner) {
  return {owner.inc_ref().ptr(), [](void* object) {
            if (!Py_IsInitialized()) return;
            py::gil_scoped_acquire acquire;
            Py_DECREF(static_cast<PyObject*>(object));
          }};
}

void take(const std::vector<const DescribedTensor*>& tensors, std::vector<TensorDesc>* out,
          std::vector<std::shared_ptr<void>>* owners) {
  for (const DescribedTensor* tensor : tensors) {
    if (!tensor) raise_if(Status::invalid("an operand is None; expected a TensorDesc"));
    out->push_back(tensor->desc);
    if (!tensor->owner.is_none()) owners->push_back(keep(tensor->owner));
  }
}

std::string op_call(py::handle kind, const std::vector<const DescribedTensor*>& inputs,
                    const std::vector<const DescribedTensor*>& outputs, const py::dict& attrs,
                    const std::string& kernel_id, uintptr_t stream, py::handle counts) {
  OpDesc op;
  std::vector<std::shared_ptr<void>> owners;  // released with the GIL held
  op.schema = &parse_schema(kind);
  take(inputs, &op.inputs, &owners);
  take(outputs, &op.outputs, &owners);
  parse_counts(counts, &op, Subject::Call);
  raise_if(read_attrs(*op.schema, attrs, &op.attrs));
  const KernelVariant* ran = nullptr;
  Status status = Status::ok();
  {
    py::gil_scoped_release release;
    status = dispatch(op, kernel_id, as_stream(stream), owners, &ran);
  }
  raise_if(status);
  return ran->name;
}

std::unique_ptr<RecordedGraph> end_graph(const std::string& device) {
  std::unique_ptr<RecordedGraph> graph;
  raise_if(graph_end(device_named(device), &graph));
  return graph;
}

void launch_graph(RecordedGraph& graph, py::handle n, uintptr_t stream) {
  const int64_t count = parse_int(n, "n");
  Status status = Status::ok();
  {
    py::gil_scoped_release release;
    status = graph.launch(count, as_stream(stream));
  }
  raise_if(status);
}

}  // namespace

void bind_calls(py::module_& m) {
  py::class_<DescribedTensor>(m, "TensorDesc")
      .def(py::init(&make_described), py::arg("data"), py::arg("dtype"), py::arg("shape"),
           py::arg("strides") = py::none(), py::arg("device") = "cpu", py::arg("owner") = py::none())
      .def_property_readonly(
          "data", [](const DescribedTensor& t) { return reinterpret_cast<uintptr_t>(t.desc.data); })
      .def_property_readonly("dtype", [](const DescribedTensor& t) { return dtype_name(t.desc.dtype); })
      .def_property_readonly("shape",
                             [](const DescribedTensor& t) { return as_tuple(t.desc.shape, t.desc.rank); })
      .def_property_readonly("strides",
                             [](const DescribedTensor& t) { return as_tuple(t.desc.strides, t.desc.rank); })
      .def_property_readonly(
          "device", [](const DescribedTensor& t) { return device_name(t.desc.device, t.desc.device_index); })
      .def_property_readonly("alignment", [](const DescribedTensor& t) { return t.desc.alignment; })
      .def("__repr__", [](const DescribedTensor& t) { return "TensorDesc(" + t.desc.str() + ")"; });
  m.def("op_call", &op_call, py::arg("kind"), py::arg("inputs"), py::arg("outputs"), py::arg("attrs"),
        py::arg("kernel_id") = "", py::arg("stream") = 0, py::arg("counts") = py::none());

  py::class_<RecordedGraph>(m, "Graph");
  m.def(
      "graph_begin", [](const std::string& device) { raise_if(graph_begin(device_named(device))); },
      py::arg("device") = "cpu");
  m.def("graph_end", &end_graph, py::arg("device") = "cpu");
  m.def("graph_launch", &launch_graph, py::arg("graph"), py::arg("n") = 1, py::arg("stream") = 0);
  m.def("graph_reset", [](RecordedGraph& graph) { raise_if(graph.reset()); }, py::arg("graph"));
}

}  // namespace aicf::bindings
