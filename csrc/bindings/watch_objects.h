// What a Watch compares of dictionaries, classes, arrays and of the process.
#pragma once
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/torch_layout.h"

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

// Eight bytes of memory and what they were. A watch compares these before each step; only where one differs
// it looks at the entry that they belong to.
struct Word {
  const void* place;
  uint64_t was;
  bool same() const { return read_at<uint64_t>(place, 0) == was; }
  // A pointer at `place`, where somebody keeps alive what it points at.
  static Word of(const void* place, const void* pointer) {
    static_assert(sizeof pointer == sizeof(uint64_t));
    return {place, reinterpret_cast<uintptr_t>(pointer)};
  }
  static Word now(const void* object, ptrdiff_t offset) {
    return {static_cast<const char*>(object) + offset, read_at<uint64_t>(object, offset)};
  }
  // One that is never the same: its entry is looked at each time.
  static Word unknown() {
    static const uint64_t zero = 0;
    return {&zero, 1};
  }
};
using Words = std::vector<Word>;

// The version of a dictionary: as long as that stays, so does the dictionary. CPython has it up to 3.12.
inline Word version_of_dictionary(PyObject* dictionary) {
#if PY_VERSION_HEX < 0x030D0000
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const uint64_t& version = reinterpret_cast<PyDictObject*>(dictionary)->ma_version_tag;
#pragma GCC diagnostic pop
  if (version) return Word::now(&version, 0);
#else
  (void)dictionary;
#endif
  return Word::unknown();
}

// The version of a class: each change of it or of a base takes it away. CPython may have none left to give.
inline Word version_of_class(PyObject* type) {
  static PyObject* const name = PyUnicode_InternFromString("__class__");
  auto* own = reinterpret_cast<PyTypeObject*>(type);
  _PyType_Lookup(own, name);  // gives a class that has none its next version
  if (!(own->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) || !own->tp_version_tag) return Word::unknown();
  return Word::now(&own->tp_version_tag, 0);
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
inline bool says_same(PyObject* function, PyObject* argument, PyObject* expected) {
  PyObject* now = called(function, argument);
  bool same = now == expected;
  if (!same && now && Py_TYPE(now) == Py_TYPE(expected) &&
      (PyLong_CheckExact(now) || PyUnicode_CheckExact(now) || PyFloat_CheckExact(now)))
    same = PyObject_RichCompareBool(now, expected, Py_EQ) == 1;
  Py_XDECREF(now);
  if (PyErr_Occurred()) PyErr_Clear();
  return same;
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
