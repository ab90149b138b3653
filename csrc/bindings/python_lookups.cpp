// From what an instruction has as operands to the places that it looks in.
#include <cstring>
#include <initializer_list>

#include "bindings/python_places.h"

namespace aicf::python {
namespace {

PyObject* dict_of(PyObject* o) {  // borrowed: of an object or a module; null if it has none
  if (PyType_Check(o)) return nullptr;
  PyTypeObject* t = Py_TYPE(o);
  if (!(t->tp_flags & Py_TPFLAGS_MANAGED_DICT) && t->tp_dictoffset == 0) return nullptr;
  PyObject* d = PyObject_GenericGetDict(o, nullptr);
  if (!d) return PyErr_Clear(), nullptr;
  Py_DECREF(d);
  return PyDict_Check(d) ? d : nullptr;
}

PyTypeObject* local_type() {
  static PyObject* type = [] {
    Owned threads = Owned::steal(PyImport_ImportModule("_thread"));
    return PyObject_GetAttrString(threads.get(), "_local");
  }();
  return (PyTypeObject*)type;
}

bool is_users(PyTypeObject* t) { return t->tp_flags & Py_TPFLAGS_HEAPTYPE; }

bool is_one_of(PyObject* name, std::initializer_list<const char*> names) {
  for (const char* each : names)
    if (PyUnicode_CompareWithASCIIString(name, each) == 0) return true;
  return false;
}

// What a method of Python's containers does; most of those that write read as well.
Use use_of(PyObject* method) {
  if (is_one_of(method, {"clear"})) return Use::kSets;
  return is_one_of(method, {"append", "appendleft", "extend", "extendleft", "insert", "add", "update"})
             ? Use::kAdds
             : Use::kReads;
}

// Of a function or method in C; empty for anything else.
const char* name_in_c(PyObject* callable) {
  if (PyCFunction_Check(callable)) return ((PyCFunctionObject*)callable)->m_ml->ml_name;
  return Py_IS_TYPE(callable, &PyMethodDescr_Type) ? ((PyMethodDescrObject*)callable)->d_method->ml_name : "";
}

// Whether a function in C of this name writes to `o`, a file: it gives lines one after another, and these are
// not asked for.
bool is_written(PyObject* o, const char* name) {
  static PyObject* base = [] {
    Owned io = Owned::steal(PyImport_ImportModule("_io"));
    return PyObject_GetAttrString(io.get(), "_IOBase");
  }();
  for (const char* each : {"write", "writelines", "flush", "print", "isatty", "fileno"})
    if (strcmp(name, each) == 0) return PyType_IsSubtype(Py_TYPE(o), (PyTypeObject*)base);
  return false;
}

}  // namespace

void note_attribute(PyObject* o, PyObject* name, Use use) {
  Places& places = Places::get();
  if (PyType_Check(o)) return places.note(kClass, o, name, use);
  PyTypeObject* t = Py_TYPE(o);
  PyObject* of_class = _PyType_Lookup(t, name);
  if (is_users(t)) places.note(kClass, (PyObject*)t, name);
  if (places.is_tensor(o)) return;
  if (is_users(t) && !PyType_IsSubtype(t, &PyModule_Type)) places.note(kObject, o, nullptr);
  if (of_class && Py_IS_TYPE(of_class, &PyMemberDescr_Type)) return places.note(kSlot, o, name, use);
  if (of_class && Py_TYPE(of_class)->tp_descr_set) return;  // a property, whose code is looked at itself
  if (PyObject_TypeCheck(o, local_type())) {
    static PyObject* dict_name = PyUnicode_InternFromString("__dict__");
    if (Owned d = Owned::steal(local_type()->tp_getattro(o, dict_name))) places.item(d.get(), name, use, o);
    return PyErr_Clear();
  }
  if (PyObject* d = dict_of(o)) places.item(d, name, use, o);
}

void note_super(PyObject* type, PyObject* self, PyObject* name) {
  PyTypeObject* of = PyType_Check(self) ? (PyTypeObject*)self : Py_TYPE(self);
  bool is_behind = false;
  for (Py_ssize_t i = 0; of->tp_mro && i < PyTuple_GET_SIZE(of->tp_mro); i++) {
    PyObject* each = PyTuple_GET_ITEM(of->tp_mro, i);
    if (is_behind) {
      Places::get().note(kClass, each, name);
      if (_PyType_Lookup((PyTypeObject*)each, name)) return;
    }
    is_behind = is_behind || each == type;
  }
}

void note_member(PyObject* container, PyObject* key, Use use) {
  Places& places = Places::get();
  if (PyDict_Check(container)) return places.item(container, key, use);
  if (use == Use::kReads) return note_used(container);
  if (places.is_container(container)) places.note(kContent, container, nullptr, Use::kAdds);
}

void note_tested(PyObject* o) {
  if (!Places::get().is_opaque(o)) note_used(o);
}

void note_used(PyObject* o) {
  Places& places = Places::get();
  if (places.is_tensor(o)) return;
  if (Py_IS_TYPE(o, &PyContextVar_Type)) return places.note(kContext, o, nullptr);
  if (places.is_container(o)) places.note(kContent, o, nullptr);
  if (PyType_Check(o) || PyModule_Check(o)) return;
  if (places.is_opaque(o)) return places.note(kOpaque, o, nullptr);
  if (is_users(Py_TYPE(o))) places.note(kObject, o, nullptr);  // whose class says what an operator does
}

void note_manager(PyObject* o) {
  static PyObject* const names[] = {PyUnicode_InternFromString("__enter__"),
                                    PyUnicode_InternFromString("__exit__")};
  if (is_users(Py_TYPE(o)))
    for (PyObject* name : names) Places::get().note(kClass, (PyObject*)Py_TYPE(o), name);
}

void note_call(PyObject* callable, PyObject* const* arguments, Py_ssize_t n) {
  Places& places = Places::get();
  const char* name = name_in_c(callable);
  auto use = [&](PyObject* o) {
    if (!is_written(o, name)) note_used(o);
  };
  while (PyMethod_Check(callable)) callable = PyMethod_GET_FUNCTION(callable);
  if (PyFunction_Check(callable)) return;
  if (PyType_Check(callable) && is_users((PyTypeObject*)callable)) {
    static PyObject* const names[] = {PyUnicode_InternFromString("__new__"),
                                      PyUnicode_InternFromString("__init__")};
    for (PyObject* name : names) places.note(kClass, callable, name);
    for (Py_ssize_t i = 0; i < n; i++)  // a class in C may be behind it: `Mine(dict)`
      if (places.is_opaque(arguments[i])) places.note(kOpaque, arguments[i], nullptr);
    return;
  }
  if (!PyType_Check(callable) && is_users(Py_TYPE(callable))) {
    static PyObject* call_name = PyUnicode_InternFromString("__call__");
    note_attribute(callable, call_name, Use::kReads);
  }
  if (n == 0 && PyCFunction_Check(callable)) places.note(kSetting, callable, nullptr);
  if (Py_IS_TYPE(callable, &PyMethodDescr_Type) && n > 0 && places.is_container(arguments[0])) {
    PyObject* method = ((PyDescrObject*)callable)->d_name;
    if (PyDict_Check(arguments[0]) && n >= 2 && is_one_of(method, {"get"}))
      places.item(arguments[0], arguments[1], Use::kReads);
    else
      places.note(kContent, arguments[0], nullptr, use_of(method));
    for (Py_ssize_t i = 1; i < n; i++) use(arguments[i]);
    return;
  }
  if (PyCFunction_Check(callable)) {
    PyObject* self = PyCFunction_GET_SELF(callable);
    if (self && PyModule_Check(self)) {
      bool sets = strcmp(name, "setattr") == 0 || strcmp(name, "delattr") == 0;
      bool is_attribute = sets || strcmp(name, "getattr") == 0 || strcmp(name, "hasattr") == 0;
      if (is_attribute && n >= 2 && PyUnicode_CheckExact(arguments[1]))
        return note_attribute(arguments[0], arguments[1], sets ? Use::kSets : Use::kReads);
      for (const char* each : {"isinstance", "id", "callable", "type"})
        if (strcmp(name, each) == 0) return;
    } else if (self) {
      use(self);
    }
  }
  for (Py_ssize_t i = 0; i < n; i++) use(arguments[i]);
}

}  // namespace aicf::python
