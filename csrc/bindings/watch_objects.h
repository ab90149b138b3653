// What a Watch compares of functions, classes, objects and of the process: a few words each.
#pragma once
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"

namespace aicf::bindings {

// A strong reference that the cyclic collector can see through Watch.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* borrowed) : object_(borrowed) { Py_XINCREF(object_); }
  explicit Ref(py::handle borrowed) : Ref(borrowed.ptr()) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }

 private:
  PyObject* object_ = nullptr;
};

// After a step little of what a watch looks at is in the cache: it is asked for so many objects ahead.
constexpr size_t kAhead = 16;

inline void prefetch(const void* object, Py_ssize_t offset = 0) {
  __builtin_prefetch(static_cast<const char*>(object) + offset);
}

// Whether the memory that `owner` exports holds the bytes of `expected`, in the order of its indices.
inline bool same_bytes(PyObject* owner, PyObject* expected) {
  Py_buffer now;
  if (PyObject_GetBuffer(owner, &now, PyBUF_FULL_RO) != 0) {
    PyErr_Clear();
    return false;
  }
  bool same = now.len == PyBytes_GET_SIZE(expected);
  const size_t length = static_cast<size_t>(now.len);
  if (same && PyBuffer_IsContiguous(&now, 'C')) {
    same = !std::memcmp(now.buf, PyBytes_AS_STRING(expected), length);
  } else if (same) {
    std::string dense(length, 0);
    same = PyBuffer_ToContiguous(dense.data(), &now, now.len, 'C') == 0 &&
           !std::memcmp(dense.data(), PyBytes_AS_STRING(expected), length);
    if (PyErr_Occurred()) PyErr_Clear();
  }
  PyBuffer_Release(&now);
  return same;
}

// A new reference to what `function` returns, without an argument where that is null. One in C of no or of
// one argument is called directly: that is a third of the time of a call.
inline PyObject* called(PyObject* function, PyObject* argument) {
  if (PyCFunction_CheckExact(function)) {
    const int flags = PyCFunction_GET_FLAGS(function);
    if (flags == (argument ? METH_O : METH_NOARGS))
      return PyCFunction_GET_FUNCTION(function)(PyCFunction_GET_SELF(function), argument);
  }
  return argument ? PyObject_CallOneArg(function, argument) : PyObject_CallNoArgs(function);
}

// Whether `function` still says `expected`: the same object, or an equal number or text.
inline bool same_word(PyObject* function, PyObject* argument, PyObject* expected) {
  PyObject* now = called(function, argument);
  bool same = now == expected;
  if (!same && now && Py_TYPE(now) == Py_TYPE(expected) &&
      (PyLong_CheckExact(now) || PyUnicode_CheckExact(now) || PyFloat_CheckExact(now)))
    same = PyObject_RichCompareBool(now, expected, Py_EQ) == 1;
  Py_XDECREF(now);
  if (PyErr_Occurred()) PyErr_Clear();
  return same;
}

constexpr size_t kFunctionParts =
    4;  // the function, its code, its defaults, those of keywords; null for none

inline void add_parts(std::vector<Ref>& parts, PyObject* function) {
  const auto* own = reinterpret_cast<PyFunctionObject*>(function);
  for (PyObject* part : {function, own->func_code, own->func_defaults, own->func_kwdefaults})
    parts.emplace_back(part);
}

inline bool same_functions(const std::vector<Ref>& parts) {
  for (size_t i = 0; i < parts.size(); i += kFunctionParts) {
    if (const size_t ahead = i + kAhead * kFunctionParts; ahead < parts.size())
      prefetch(parts[ahead].get(), offsetof(PyFunctionObject, func_code));
    const auto* function = reinterpret_cast<PyFunctionObject*>(parts[i].get());
    if (function->func_code != parts[i + 1].get() || function->func_defaults != parts[i + 2].get() ||
        function->func_kwdefaults != parts[i + 3].get())
      return false;
  }
  return true;
}

// The version of a class, which each change of it or of a base renews; 0 where CPython has none left to give.
inline unsigned version_of(PyTypeObject* type, bool renew) {
  if (renew) {
    static PyObject* const name = PyUnicode_InternFromString("__class__");
    _PyType_Lookup(type, name);  // gives a class that has none its next version
  }
  return type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG ? type->tp_version_tag : 0;
}

inline std::vector<unsigned> versions_of(const std::vector<Ref>& types) {
  std::vector<unsigned> versions;
  for (const Ref& type : types)
    versions.push_back(version_of(reinterpret_cast<PyTypeObject*>(type.get()), true));
  return versions;
}

inline bool same_types(const std::vector<Ref>& types, const std::vector<unsigned>& versions) {
  for (size_t i = 0; i < types.size(); ++i) {
    if (i + kAhead < types.size()) prefetch(types[i + kAhead].get(), offsetof(PyTypeObject, tp_version_tag));
    if (!versions[i] || version_of(reinterpret_cast<PyTypeObject*>(types[i].get()), false) != versions[i])
      return false;
  }
  return true;
}

constexpr size_t kInstanceParts = 3;  // the object, its class, its dictionary or null

// The dictionary of an object, borrowed; null where it has none.
inline PyObject* dictionary_of(PyObject* object) {
#if PY_VERSION_HEX < 0x030C0000
  PyObject** place = _PyObject_GetDictPtr(object);
  return place ? *place : nullptr;
#else
  PyObject* dictionary = PyObject_GenericGetDict(object, nullptr);
  if (!dictionary) PyErr_Clear();
  Py_XDECREF(dictionary);  // the object keeps it
  return dictionary;
#endif
}

inline void add_instance(std::vector<Ref>& parts, PyObject* object) {
  parts.emplace_back(object);
  parts.emplace_back(reinterpret_cast<PyObject*>(Py_TYPE(object)));
  parts.emplace_back(dictionary_of(object));
}

inline bool same_instances(const std::vector<Ref>& parts) {
  for (size_t i = 0; i < parts.size(); i += kInstanceParts) {
    if (const size_t ahead = i + kAhead * kInstanceParts; ahead < parts.size())
      prefetch(parts[ahead].get(), -3 * static_cast<Py_ssize_t>(sizeof(void*)));
    PyObject* object = parts[i].get();
    if (reinterpret_cast<PyObject*>(Py_TYPE(object)) != parts[i + 1].get() ||
        dictionary_of(object) != parts[i + 2].get())
      return false;
  }
  return true;
}

// A new reference to what a ContextVar holds in this context; null for nothing.
inline PyObject* in_context(PyObject* variable) {
  PyObject* value = nullptr;
  if (PyContextVar_Get(variable, nullptr, &value) != 0) PyErr_Clear();
  return value;
}

inline bool same_context(PyObject* variable, PyObject* expected) {
  PyObject* value = in_context(variable);
  Py_XDECREF(value);  // compared by its address alone
  return value == expected;
}

}  // namespace aicf::bindings
