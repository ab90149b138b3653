// How many values are on the stack before each instruction of a code object: by what each instruction does to
// it, along all jumps and to all handlers of exceptions.
#include "bindings/python_depths.h"

#include <opcode.h>

#include <cstring>

namespace aicf::python {
namespace {

struct Jumps {
  bool jumps[256] = {}, is_backward[256] = {}, ends[256] = {};

  Jumps() {
    Owned module = Owned::steal(PyImport_ImportModule("opcode"));
    Owned names = Owned::steal(PyObject_GetAttrString(module.get(), "opname"));
    Owned jumping = Owned::steal(PyObject_GetAttrString(module.get(), "hasjrel"));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(jumping.get()); i++) {
      const long op = PyLong_AsLong(PyList_GET_ITEM(jumping.get(), i));
      if (op >= 0 && op < 256) jumps[op] = true;  // the others are never in code
    }
    for (int op = 0; op < 256 && op < PyList_GET_SIZE(names.get()); op++) {
      const char* name = PyUnicode_AsUTF8(PyList_GET_ITEM(names.get(), op));
      is_backward[op] = strstr(name, "BACKWARD") != nullptr;
      for (const char* each : {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "RETURN_VALUE",
                               "RETURN_CONST", "RAISE_VARARGS", "RERAISE"})
        ends[op] = ends[op] || strcmp(name, each) == 0;
    }
  }
};

// Calls `each(first, past the last, target, depth there)` for the handlers of exceptions, in instructions.
template <class Each>
void for_handlers(PyObject* table, Each each) {
  auto* at = (const unsigned char*)PyBytes_AS_STRING(table);
  const auto* end = at + PyBytes_GET_SIZE(table);
  auto number = [&] {
    int value = *at & 63;
    while (*at++ & 64 && at < end) value = value << 6 | (*at & 63);
    return value;
  };
  while (at < end) {
    const int first = number(), count = number(), target = number(), packed = number();
    each(first, first + count, target, (packed >> 1) + (packed & 1) + 1);  // where it was, and the exception
  }
}

}  // namespace

Code::Code(PyCodeObject* code)
    : object(Owned::to((PyObject*)code)), text(Owned::steal(PyCode_GetCode(code))) {
  static const Jumps known;
  auto* bytes = (const unsigned char*)PyBytes_AS_STRING(text.get());
  const int size = (int)PyBytes_GET_SIZE(text.get()) / 2;
  depths.assign(size, -1);
  std::vector<int> pending;
  auto reach = [&](int at, int depth) {
    if (at < 0 || at >= size || depth < 0 || depths[at] >= 0) return;
    depths[at] = depth;
    pending.push_back(at);
  };
  const bool is_generator = code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR);
  // a generator begins with what is sent to it, unless an instruction says so
  reach(0, is_generator && PyCompile_OpcodeStackEffect(RETURN_GENERATOR, 0) == 0);
  for_handlers(code->co_exceptiontable, [&](int, int, int target, int depth) { reach(target, depth); });
  while (!pending.empty()) {
    int at = pending.back();
    pending.pop_back();
    const int depth = depths[at], op = bytes[2 * at], argument = this->argument(at);
    int next = at + 1;
    while (next < size && bytes[2 * next] == CACHE) next++;
    auto after = [&](bool jump) {
      if (op == EXTENDED_ARG) return depth;
      const int effect = PyCompile_OpcodeStackEffectWithJump(op, op >= HAVE_ARGUMENT ? argument : 0, jump);
      return effect == PY_INVALID_STACK_EFFECT ? -1 : depth + effect;
    };
    if (known.jumps[op]) reach(known.is_backward[op] ? next - argument : next + argument, after(true));
    if (!known.ends[op]) reach(next, after(false));
  }
  PyErr_Clear();
}

int Code::argument(int at) const {
  auto* bytes = (const unsigned char*)PyBytes_AS_STRING(text.get());
  int argument = bytes[2 * at + 1];
  for (int k = at, shift = 8; k > 0 && bytes[2 * (k - 1)] == EXTENDED_ARG; k--, shift += 8)
    argument |= bytes[2 * k - 1] << shift;
  return argument;
}

}  // namespace aicf::python
