// What each instruction looks at, by its operands on the stack of its frame.
#include <opcode.h>

#include <memory>

#include "bindings/python_depths.h"
#include "bindings/python_frame.h"

namespace aicf::python {

#ifdef AICF_KNOWS_FRAMES

namespace {

auto& codes =
    *new std::unordered_map<PyCodeObject*, std::unique_ptr<Code>>;  // never destroyed, as Python is then

const Code& known_code(PyCodeObject* code) {
  std::unique_ptr<Code>& known = codes[code];
  if (!known) known = std::make_unique<Code>(code);
  return *known;
}

// `super().name` before 3.12, which has an instruction of its own.
void see_attribute(PyObject* o, PyObject* name, Use use) {
  if (!Py_IS_TYPE(o, &PySuper_Type)) return note_attribute(o, name, use);
  static PyObject* const this_class = PyUnicode_InternFromString("__thisclass__");
  static PyObject* const self = PyUnicode_InternFromString("__self__");
  Owned type = Owned::steal(PyObject_GenericGetAttr(o, this_class));
  Owned object = Owned::steal(PyObject_GenericGetAttr(o, self));
  PyErr_Clear();
  if (type && object && object.get() != Py_None) note_super(type.get(), object.get(), name);
}

void see_global(Frame* frame, PyObject* name) {
  Places& places = Places::get();
  PyObject *globals = frame->f_globals, *builtins = frame->f_builtins;
  places.item(globals, name, Use::kReads);
  if (!places.has(globals, name) && builtins && PyDict_Check(builtins))
    places.item(builtins, name, Use::kReads);
}

void see_import(PyObject* name) {
  if (PyObject* modules = PyImport_GetModuleDict()) Places::get().item(modules, name, Use::kReads);
}

// `top`: behind the last value; `count`: how many arguments there are beside what the method belongs to.
void see_call(PyObject** top, int count) {
#if PY_VERSION_HEX >= 0x030D0000  // the callable, and what it belongs to or nothing
  PyObject *callable = top[-(count + 2)], *self = top[-(count + 1)];
  const bool has_self = self != nullptr;
#else  // the method and what it belongs to, or nothing and the callable
  const bool has_self = top[-(count + 2)] != nullptr;
  PyObject* callable = top[-(count + 1 + has_self)];
#endif
  note_call(callable, top - count - has_self, count + has_self);
}

// `f(*a, **b)`: a tuple of arguments, and a dictionary where the lowest bit says so.
void see_call_with_tuple(PyObject** top, int argument) {
  const int named = argument & 1;
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* callable = top[-(3 + named)];
#else
  PyObject* callable = top[-(2 + named)];
#endif
  PyObject* arguments = top[-(1 + named)];
  if (!PyTuple_CheckExact(arguments)) return note_used(arguments);
  std::vector<PyObject*> all;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments); i++) all.push_back(PyTuple_GET_ITEM(arguments, i));
  PyObject *key, *value;
  Py_ssize_t at = 0;
  if (named && PyDict_CheckExact(top[-1]))
    while (PyDict_Next(top[-1], &at, &key, &value)) all.push_back(value);
  note_call(callable, all.data(), (Py_ssize_t)all.size());
}

#if PY_VERSION_HEX >= 0x030C0000
constexpr int kAttributeShift = 1;  // the lowest bit says whether a method is loaded
#else
constexpr int kAttributeShift = 0;
#endif

}  // namespace

void see_function(Frame* frame) {
  PyObject* function = function_of(frame);
  if (function && PyFunction_Check(function)) Places::get().note(kCode, function, nullptr);
}

void see_instruction(Frame* frame, PyCodeObject* code, int offset) {
  const Code& known = known_code(code);
  const int at = offset / 2;
  if (at < 0 || at >= (int)known.depths.size()) return;
  const int argument = known.argument(at);
#if PY_VERSION_HEX >= 0x030C0000
  const int depth = known.depths[at];
#else  // the frame itself says so to a trace function
  const int depth = frame->stacktop - code->co_nlocalsplus;
#endif
  if (depth < 0) return;
  PyObject** top = frame->localsplus + code->co_nlocalsplus + depth;
  auto name = [&](int i) { return PyTuple_GET_ITEM(code->co_names, i); };
  Places& places = Places::get();
  places.at((PyObject*)code, offset);
  switch (((const unsigned char*)PyBytes_AS_STRING(known.text.get()))[offset]) {
    case LOAD_ATTR:
      return see_attribute(top[-1], name(argument >> kAttributeShift), Use::kReads);
#if PY_VERSION_HEX < 0x030C0000
    case LOAD_METHOD:
#endif
    case IMPORT_FROM:
      return see_attribute(top[-1], name(argument), Use::kReads);
    case STORE_ATTR:
    case DELETE_ATTR:
      return see_attribute(top[-1], name(argument), Use::kSets);
#ifdef LOAD_SUPER_ATTR
    case LOAD_SUPER_ATTR:
      return note_super(top[-2], top[-1], name(argument >> 2));
#endif
    case LOAD_GLOBAL:
      return see_global(frame, name(argument >> 1));
    case LOAD_NAME:
      if (frame->f_locals && PyDict_Check(frame->f_locals))
        places.item(frame->f_locals, name(argument), Use::kReads);
      return see_global(frame, name(argument));
    case IMPORT_NAME:
      return see_import(name(argument));
    case STORE_GLOBAL:
    case DELETE_GLOBAL:
      return places.item(frame->f_globals, name(argument), Use::kSets);
#ifdef LOAD_CLASSDEREF
    case LOAD_CLASSDEREF:
#else
    case LOAD_FROM_DICT_OR_DEREF:
#endif
    case LOAD_DEREF:
      return places.note(kCell, frame->localsplus[argument], nullptr);
    case STORE_DEREF:
    case DELETE_DEREF:
      return places.note(kCell, frame->localsplus[argument], nullptr, Use::kSets);
    case BINARY_SUBSCR:
      return note_member(top[-2], top[-1], Use::kReads);
    case STORE_SUBSCR:
    case DELETE_SUBSCR:
      return note_member(top[-2], top[-1], Use::kSets);
    case CONTAINS_OP:
      return note_member(top[-1], top[-2], Use::kReads);
#ifdef BINARY_SLICE
    case BINARY_SLICE:
      return note_used(top[-3]);
    case STORE_SLICE:
      return note_member(top[-3], Py_None, Use::kSets);
#endif
    case COMPARE_OP:
    case BINARY_OP:
      note_used(top[-2]);
      return note_used(top[-1]);
    case UNARY_NEGATIVE:
    case UNARY_INVERT:
    case GET_ITER:
    case FOR_ITER:
    case GET_LEN:
    case UNPACK_SEQUENCE:
    case UNPACK_EX:
    case LIST_EXTEND:
    case SET_UPDATE:
    case DICT_MERGE:
    case DICT_UPDATE:
      return note_used(top[-1]);
    case UNARY_NOT:
#ifdef TO_BOOL
    case TO_BOOL:
#endif
#if PY_VERSION_HEX >= 0x030C0000
    case POP_JUMP_IF_TRUE:
    case POP_JUMP_IF_FALSE:
#else
    case POP_JUMP_FORWARD_IF_TRUE:
    case POP_JUMP_FORWARD_IF_FALSE:
    case POP_JUMP_BACKWARD_IF_TRUE:
    case POP_JUMP_BACKWARD_IF_FALSE:
    case JUMP_IF_TRUE_OR_POP:
    case JUMP_IF_FALSE_OR_POP:
#endif
      return note_tested(top[-1]);
    case BEFORE_WITH:
      return note_manager(top[-1]);
    case CALL:
      return see_call(top, argument);
#ifdef CALL_KW
    case CALL_KW:
      return see_call(top - 1, argument);
#endif
    case CALL_FUNCTION_EX:
      return see_call_with_tuple(top, argument);
    default:
      return;
  }
}

void forget_code() { codes.clear(); }

#else

void see_function(Frame*) {}
void see_instruction(Frame*, PyCodeObject*, int) {}
void forget_code() {}

#endif

}  // namespace aicf::python
