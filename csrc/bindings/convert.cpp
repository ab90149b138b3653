#include "bindings/bindings.h"
#include "device/device.h"
#include "op/registry.h"
#include "op/validate.h"

namespace aicf::bindings {
namespace {

const char* error_class(Code code, Subject subject) {
  switch (code) {
    case Code::Ok:
    case Code::Device:
      return "KernelError";
    case Code::Unsupported:
      return "SelectionError";
    case Code::State:
      return "StateError";
    case Code::Capture:
      return "CaptureError";
    case Code::Invalid:
      break;
  }
  return subject == Subject::Op ? "VerifyError" : subject == Subject::Plan ? "PlanError" : "KernelError";
}

bool is_int(py::handle value) { return PyIndex_Check(value.ptr()) && !PyBool_Check(value.ptr()); }

// "got 3.5 of type float"
std::string got(py::handle value) {
  std::string text = py::repr(value);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return "got " + text + " of type " + Py_TYPE(value.ptr())->tp_name;
}

Status read_int(py::handle value, int64_t* out) {
  if (!is_int(value)) return Status::invalid("expected an int, " + got(value));
  const py::object index = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!index) throw py::error_already_set();
  int overflow = 0;
  *out = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  return overflow ? Status::invalid("expected an int of 64 bits, " + got(value)) : Status::ok();
}

Status read_ints(py::handle values, std::vector<int64_t>* out) {
  if (!PyList_Check(values.ptr()) && !PyTuple_Check(values.ptr()))
    return Status::invalid("expected a list of ints, " + got(values));
  for (const py::handle value : py::reinterpret_borrow<py::sequence>(values)) {
    int64_t number = 0;
    AICF_TRY(read_int(value, &number));
    out->push_back(number);
  }
  return Status::ok();
}

Status read_texts(py::handle values, std::vector<std::string>* out) {
  if (!PyList_Check(values.ptr()) && !PyTuple_Check(values.ptr()))
    return Status::invalid("expected a list of strings, " + got(values));
  for (const py::handle value : py::reinterpret_borrow<py::sequence>(values)) {
    if (!PyUnicode_Check(value.ptr())) return Status::invalid("expected a string, " + got(value));
    out->push_back(value.cast<std::string>());
  }
  return Status::ok();
}

Status read_attr(const AttrRow& row, py::handle value, Attrs* out) {
  switch (row.type) {
    case AttrType::Bool:
      if (!PyBool_Check(value.ptr())) return Status::invalid("expected a bool, " + got(value));
      return out->set_bool(row, value.cast<bool>());
    case AttrType::Int: {
      int64_t number = 0;
      AICF_TRY(read_int(value, &number));
      return out->set_int(row, number);
    }
    case AttrType::Float:
      if (!PyFloat_Check(value.ptr()) && !is_int(value))
        return Status::invalid("expected a float, " + got(value));
      return out->set_float(row, value.cast<double>());
    case AttrType::Enum:
      if (!PyUnicode_Check(value.ptr())) return Status::invalid("expected a string, " + got(value));
      return out->set_enum(row, value.cast<std::string>());
    case AttrType::Ints: {
      std::vector<int64_t> numbers;
      AICF_TRY(read_ints(value, &numbers));
      return out->set_ints(row, std::move(numbers));
    }
    case AttrType::Text:
      if (!PyUnicode_Check(value.ptr())) return Status::invalid("expected a string, " + got(value));
      return out->set_text(row, value.cast<std::string>());
    case AttrType::Texts: {
      std::vector<std::string> texts;
      AICF_TRY(read_texts(value, &texts));
      return out->set_texts(row, std::move(texts));
    }
  }
  return Status::ok();
}

Status read_tensor(py::handle value, TensorDesc* out) {
  const Py_ssize_t parts = PyTuple_Check(value.ptr()) ? PyTuple_GET_SIZE(value.ptr()) : 0;
  if (parts < 2 || parts > 4)
    return Status::invalid(
        "expected (dtype, shape), (dtype, shape, strides) or (dtype, shape, strides, alignment), " +
        got(value));
  const auto type = py::reinterpret_borrow<py::tuple>(value);
  std::vector<int64_t> shape, strides;
  AICF_TRY(read_ints(type[1], &shape));
  AICF_TRY(make_tensor(parse_dtype(py::str(type[0])), shape, out));
  if (parts == 2) return Status::ok();
  AICF_TRY(read_ints(type[2], &strides));
  AICF_TRY(set_strides(strides, out));
  if (parts == 3) return Status::ok();
  int64_t alignment = 0;
  AICF_TRY(read_int(type[3], &alignment));
  if (alignment < 1 || alignment > kPlannedAlignment || (alignment & (alignment - 1)) != 0)
    return Status::invalid("alignment: expected a power of two from 1 to " +
                           std::to_string(kPlannedAlignment) + ", got " + std::to_string(alignment));
  out->alignment = static_cast<uint32_t>(alignment);
  return Status::ok();
}

std::vector<TensorDesc> parse_tensors(const py::list& values, const char* name) {
  std::vector<TensorDesc> tensors(values.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Status status = read_tensor(values[i], &tensors[i]);
    if (!status.is_ok()) raise_if(status.at(name + std::to_string(i)), Subject::Op);
  }
  return tensors;
}

}  // namespace

void raise_if(const Status& status, Subject subject) {
  if (status.is_ok()) return;
  const py::object cls = py::module_::import("aicf_mlir.errors").attr(error_class(status.code(), subject));
  PyErr_SetString(cls.ptr(), status.message().c_str());
  throw py::error_already_set();
}

const OpSchema& parse_schema(py::handle op) {
  const KernelRegistry& registry = KernelRegistry::get();
  const OpSchema* schema = nullptr;
  int64_t number = 0;
  if (PyUnicode_Check(op.ptr())) {
    schema = registry.schema(op.cast<std::string>());
  } else if (is_int(op) && read_int(op, &number).is_ok()) {
    schema = registry.schema(number);
  }
  if (!schema)
    raise_if(Status::invalid(
        "the kind of an operation is one of aicf_mlir.OpKind, or its name in the kernel dialect, " +
        got(op)));
  return *schema;
}

DType parse_dtype(const std::string& text) {
  DType dtype = DType::F32;
  if (!aicf::parse_dtype(text, &dtype))
    raise_if(Status::invalid("dtype '" + text + "' is none of f32, f64, f16, bf16, i64, i32, i1"));
  return dtype;
}

int64_t parse_int(py::handle value, const char* what) {
  int64_t number = 0;
  const Status status = read_int(value, &number);
  if (!status.is_ok()) raise_if(status.at(what));
  return number;
}

std::vector<int64_t> parse_ints(py::handle values, const char* what) {
  std::vector<int64_t> numbers;
  const Status status = read_ints(values, &numbers);
  if (!status.is_ok()) raise_if(status.at(what));
  return numbers;
}

void* parse_address(py::handle value, const char* what) {
  if (is_int(value)) {
    const py::object index = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
    const unsigned long long address = index ? PyLong_AsUnsignedLongLong(index.ptr()) : 0;
    if (!PyErr_Occurred()) return reinterpret_cast<void*>(address);
    PyErr_Clear();
  }
  raise_if(Status::invalid("expected an address from 0 to 2^64 - 1, " + got(value)).at(what));
  return nullptr;
}

Status read_attrs(const OpSchema& schema, const py::dict& attrs, Attrs* out) {
  for (const auto& [name, value] : attrs) {
    const std::string text = py::str(name);
    const AttrRow* row = schema.attr(text);
    if (!row) {
      std::string known;
      for (const AttrRow& other : schema.attrs)
        known += (known.empty() ? "" : ", ") + std::string(other.name);
      return Status::invalid(std::string(schema.name) + " has no attribute " + text + "; it takes " +
                             (known.empty() ? "none" : known));
    }
    const Status status = read_attr(*row, value, out);
    if (!status.is_ok()) return status.at("attribute '" + text + "'");
  }
  return Status::ok();
}

void parse_counts(py::handle counts, OpDesc* op, Subject subject) {
  if (counts.is_none()) {
    raise_if(count_operands(op), subject);
    return;
  }
  const auto pair = counts.cast<py::tuple>();
  if (pair.size() != 2) raise_if(Status::invalid("counts are a pair, of inputs and of outputs"), subject);
  op->input_counts = parse_ints(pair[0], "counts of inputs");
  op->output_counts = parse_ints(pair[1], "counts of outputs");
}

OpDesc parse_op(py::handle schema, const py::list& inputs, const py::list& outputs, const py::dict& attrs,
                py::handle counts) {
  OpDesc op;
  op.schema = &parse_schema(schema);
  op.inputs = parse_tensors(inputs, "input ");
  op.outputs = parse_tensors(outputs, "output ");
  parse_counts(counts, &op, Subject::Op);
  raise_if(read_attrs(*op.schema, attrs, &op.attrs), Subject::Op);
  return op;
}

Device& device_named(const std::string& name) {
  Device* device = nullptr;
  raise_if(get_device(name, &device));
  return *device;
}

}  // namespace aicf::bindings
