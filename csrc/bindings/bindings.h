// Between Python and the runtime: what the files of this folder share. Only they know pybind11.
#pragma once
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "device/device.h"
#include "op/status.h"
#include "op/variant.h"

namespace aicf::bindings {

namespace py = pybind11;

// Which class of aicf_mlir.errors a Code::Invalid becomes: it depends on what the call was about.
enum class Subject { Call, Op, Plan };  // KernelError, VerifyError, PlanError

// Raises the Python exception of a failed status; the other codes have one class each.
void raise_if(const Status& status, Subject subject = Subject::Call);

// Runs `work` without the GIL and raises its failure.
template <class Work>
void without_gil(Work work, Subject subject = Subject::Call) {
  Status status = Status::ok();
  {
    py::gil_scoped_release release;
    status = work();
  }
  if (status.is_ok()) return;
  if (PyErr_Occurred()) throw py::error_already_set();  // Ctrl-C, set by what `work` asked
  raise_if(status, subject);
}

// Binds what every step calls without pybind11's dispatch of overloads, half of the time of a small
// comparison: `method` takes the object, positional arguments and their number.
template <class T, PyObject* (*method)(T&, PyObject* const*, Py_ssize_t)>
void bind_directly(py::handle type, const char* name) {
  const _PyCFunctionFast call = [](PyObject* self, PyObject* const* arguments,
                                   Py_ssize_t count) -> PyObject* {
    try {
      auto* object = reinterpret_cast<py::detail::instance*>(self)->get_value_and_holder().value_ptr();
      if (!object) throw py::type_error("__init__() of the object was not called");
      return method(*static_cast<T*>(object), arguments, count);
    } catch (py::error_already_set& error) {
      error.restore();
    } catch (const py::builtin_exception& error) {
      error.set_error();
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
  };
  static PyMethodDef row{name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)),
                         METH_FASTCALL, nullptr};
  type.attr(name) =
      py::reinterpret_steal<py::object>(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type.ptr()), &row));
}

// Python values to those of the runtime. Each raises through raise_if() with the name, what was expected and
// what was got.
const OpSchema& parse_schema(py::handle op);  // by number (aicf_mlir.OpKind) or by name
DType parse_dtype(const std::string& text);
int64_t parse_int(py::handle value, const char* what);
std::vector<int64_t> parse_ints(py::handle values, const char* what);
void* parse_address(py::handle value, const char* what);
Status read_attrs(const OpSchema& schema, const py::dict& attrs, Attrs* out);
inline void* as_stream(uintptr_t stream) { return reinterpret_cast<void*>(stream); }

// How many tensors each row of the schema has, of inputs and of outputs; None where each has one.
void parse_counts(py::handle counts, OpDesc* op, Subject subject);
// An operation without memory, from lists of (dtype, shape) or (dtype, shape, strides).
OpDesc parse_op(py::handle op, const py::list& inputs, const py::list& outputs, const py::dict& attrs,
                py::handle counts);

Device& device_named(const std::string& name);

void bind_calls(py::module_& m);     // TensorDesc, op_call, graphs
void bind_registry(py::module_& m);  // OpKind, checks and selection
void bind_code(py::module_& m);      // Code
void bind_executor(py::module_& m);  // Arena, Session, Executor
void bind_watch(py::module_& m);     // Watch
void bind_exchange(py::module_& m);  // how ranks exchange bytes
void bind_devices(py::module_& m);   // devices, streams, memory, BLAS

}  // namespace aicf::bindings
