// When instructions are seen: through the thread's trace function on 3.11, by a tool of sys.monitoring
// from 3.12 on. Either leaves debuggers, profilers and coverage of the user's as they are.
#include <cstring>
#include <string>
#include <unordered_set>

#include "bindings/python_frame.h"
#include "bindings/python_places.h"

namespace aicf::python {
namespace {

bool is_recording = false;
unsigned long thread = 0;  // that records; 0 where none does

bool is_recording_thread() { return thread != 0 && PyThread_get_thread_ident() == thread; }

#ifdef AICF_KNOWS_FRAMES

// What holds Python's objects is never destroyed: Python is gone when the process ends.
auto& own_folders = *new std::vector<std::string>;  // how the files begin whose code is not looked at
auto& library_folders = *new std::vector<std::string>;
Frame* quiet = nullptr;  // below it no frame is looked at

// Whose code it is: the step's, of a tracer's own files, or of Python's library, which works for either.
enum class Whose { kSteps, kTracers, kLibrarys };

auto& files = *new std::unordered_map<PyObject*, std::pair<Owned, Whose>>;  // by the name of a file

Whose whose(PyCodeObject* code) {
  auto known = files.find(code->co_filename);
  if (known != files.end()) return known->second.second;
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  if (!file) PyErr_Clear();
  auto is_in = [&](const std::vector<std::string>& folders) {
    for (const std::string& folder : folders)
      if (file && std::string(file).rfind(folder, 0) == 0) return true;
    return false;
  };
  const bool is_installed = file && strstr(file, "site-packages");
  const Whose found = is_in(own_folders)                        ? Whose::kTracers
                      : !is_installed && is_in(library_folders) ? Whose::kLibrarys
                                                                : Whose::kSteps;
  files.emplace(code->co_filename, std::pair(Owned::to(code->co_filename), found));
  return found;
}

// Whether code of Python's library works for the step: the one that has called it says so.
bool is_steps(Frame* frame) {
  for (; frame; frame = frame->previous) {
    if (is_entry(frame)) continue;
    const Whose found = whose(code_of(frame));
    if (found != Whose::kLibrarys) return found == Whose::kSteps;
  }
  return false;
}

// A frame begins, or goes on; whether instructions of it are to be seen. Below `__torch_dispatch__` of the
// tracer and where a module is imported nothing is the step's, whoever's code it is.
bool see_frame(Frame* frame, PyCodeObject* code) {
  static PyObject* const names[] = {PyUnicode_InternFromString("__torch_dispatch__"),
                                    PyUnicode_InternFromString("_find_and_load")};
  if (quiet) return false;
  const bool is_seen = is_steps(frame);
  for (PyObject* name : names)
    if (!is_seen && PyUnicode_Compare(code->co_name, name) == 0) quiet = frame;
  if (is_seen) see_function(frame);
  return is_seen;
}

void set_folders(PyObject* own, PyObject* library) {
  files.clear();
  quiet = nullptr;
  for (auto [folders, given] : {std::pair(&own_folders, own), std::pair(&library_folders, library)}) {
    folders->clear();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); i++)
      if (const char* text = PyUnicode_AsUTF8(PyTuple_GET_ITEM(given, i))) folders->push_back(text);
  }
}

#if PY_VERSION_HEX < 0x030C0000

Py_tracefunc users_trace = nullptr;  // which sees all that it would see, but for opcodes
auto& users_object = *new Owned;

int trace(PyObject*, PyFrameObject* frame, int what, PyObject* argument) {
  if (what == PyTrace_OPCODE) {
    if (!quiet) see_instruction(frame->f_frame, frame->f_frame->f_code, PyFrame_GetLasti(frame));
    return 0;
  }
  if (what == PyTrace_CALL) {
    if (!users_trace) frame->f_trace_lines = 0;
    frame->f_trace_opcodes = see_frame(frame->f_frame, frame->f_frame->f_code);
  } else if (what == PyTrace_RETURN && frame->f_frame == quiet) {
    quiet = nullptr;
  }
  return users_trace ? users_trace(users_object.get(), frame, what, argument) : 0;
}

bool start() {
  PyThreadState* state = PyThreadState_Get();
  users_trace = state->c_tracefunc;
  users_object = Owned::to(state->c_traceobj);
  return true;
}

void set_recording(bool on) {
  if (on == is_recording) return;
  is_recording = on;
  PyEval_SetTrace(on ? trace : users_trace, on ? nullptr : users_object.get());
}

// False where the step itself has set another one.
bool stop() {
  const bool whole = !is_recording || PyThreadState_Get()->c_tracefunc == trace;
  if (whole) set_recording(false);
  is_recording = false;
  users_object = Owned();
  users_trace = nullptr;
  return whole;
}

#else

auto& monitoring = *new Owned;  // sys.monitoring
long tool = -1;
auto& seen_codes = *new std::unordered_map<PyObject*, Owned>;  // those whose instructions come

long event(const char* name) {
  Owned events = Owned::steal(PyObject_GetAttrString(monitoring.get(), "events"));
  Owned number = Owned::steal(PyObject_GetAttrString(events.get(), name));
  return number ? PyLong_AsLong(number.get()) : 0;
}

bool is_ours() { return is_recording && is_recording_thread(); }

PyObject* begins(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  if (!is_ours()) Py_RETURN_NONE;
  auto* code = (PyCodeObject*)arguments[0];
  if (see_frame(running_frame(), code) && !seen_codes.count(arguments[0])) {
    seen_codes.emplace(arguments[0], Owned::to(arguments[0]));
    static const long instruction = event("INSTRUCTION");
    Owned done = Owned::steal(
        PyObject_CallMethod(monitoring.get(), "set_local_events", "lOl", tool, arguments[0], instruction));
    if (!done) return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* ends(PyObject*, PyObject* const*, Py_ssize_t) {
  if (quiet && is_recording_thread() && running_frame() == quiet) quiet = nullptr;
  Py_RETURN_NONE;
}

PyObject* instruction(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  if (is_ours() && !quiet)
    see_instruction(running_frame(), (PyCodeObject*)arguments[0], (int)PyLong_AsLong(arguments[1]));
  Py_RETURN_NONE;
}

#define AICF_FAST(function) ((PyCFunction)(void (*)(void))(function))
PyMethodDef callbacks[] = {{"begins", AICF_FAST(begins), METH_FASTCALL, nullptr},
                           {"ends", AICF_FAST(ends), METH_FASTCALL, nullptr},
                           {"instruction", AICF_FAST(instruction), METH_FASTCALL, nullptr}};

const struct {
  const char* event;
  int callback;
  bool everywhere;
} kEvents[] = {{"PY_START", 0, true},  {"PY_RESUME", 0, true}, {"PY_THROW", 0, true},
               {"PY_RETURN", 1, true}, {"PY_UNWIND", 1, true}, {"INSTRUCTION", 2, false}};

bool register_callbacks(bool on) {
  for (const auto& row : kEvents) {
    Owned callback =
        on ? Owned::steal(PyCFunction_New(&callbacks[row.callback], nullptr)) : Owned::to(Py_None);
    Owned before = Owned::steal(PyObject_CallMethod(monitoring.get(), "register_callback", "llO", tool,
                                                    event(row.event), callback.get()));
    if (!before) return false;
  }
  return true;
}

// Takes the first tool that nobody has, from the last on: the first ones are those of debuggers and coverage.
bool start() {
  monitoring = Owned::to(PySys_GetObject("monitoring"));
  for (tool = 4; tool >= 3; tool--) {
    Owned used = Owned::steal(PyObject_CallMethod(monitoring.get(), "use_tool_id", "ls", tool, "aicf"));
    if (used) break;
    PyErr_Clear();
  }
  if (tool < 3) {
    PyErr_SetString(PyExc_RuntimeError, "no tool of sys.monitoring is free (3 and 4 are taken)");
    return false;
  }
  long everywhere = 0;
  for (const auto& row : kEvents) everywhere |= row.everywhere ? event(row.event) : 0;
  return register_callbacks(true) &&
         Owned::steal(PyObject_CallMethod(monitoring.get(), "set_events", "ll", tool, everywhere));
}

void set_recording(bool on) { is_recording = on; }

bool stop() {
  is_recording = false;
  if (tool < 3) return true;
  Owned::steal(PyObject_CallMethod(monitoring.get(), "set_events", "ll", tool, 0L));
  for (auto& [code, kept] : seen_codes)
    Owned::steal(PyObject_CallMethod(monitoring.get(), "set_local_events", "lOl", tool, code, 0L));
  seen_codes.clear();
  register_callbacks(false);
  Owned::steal(PyObject_CallMethod(monitoring.get(), "free_tool_id", "l", tool));
  tool = -1;
  PyErr_Clear();
  return true;
}

#endif
#else

bool start() {
  PyErr_SetString(
      PyExc_RuntimeError,
      "AICF does not know the frames of this Python, and cannot see what a step reads; Python 3.11 to"
      " 3.13 are supported");
  return false;
}
void set_folders(PyObject*, PyObject*) {}
void set_recording(bool on) { is_recording = on; }
bool stop() { return true; }

#endif

PyObject* begin(PyObject*, PyObject* arguments) {
  PyObject *own, *library, *tensor, *opaque, *arrays;
  if (!PyArg_ParseTuple(arguments, "O!O!OO!O!", &PyTuple_Type, &own, &PyTuple_Type, &library, &tensor,
                        &PyTuple_Type, &opaque, &PyTuple_Type, &arrays))
    return nullptr;
  set_folders(own, library);
  Places::get().begin({Owned::to(tensor), Owned::to(opaque), Owned::to(arrays)});
  if (!start()) return nullptr;
  thread = PyThread_get_thread_ident();
  set_recording(true);
  Py_RETURN_NONE;
}

PyObject* pause(PyObject*, PyObject*) {
  const bool was = is_recording && is_recording_thread();
  if (was) set_recording(false);
  return PyBool_FromLong(was);
}

PyObject* resume(PyObject*, PyObject*) {
  if (is_recording_thread()) set_recording(true);
  Py_RETURN_NONE;
}

PyObject* end(PyObject*, PyObject*) {
  const bool whole = stop();
  thread = 0;
  if (!whole) {
    PyErr_SetString(PyExc_RuntimeError, "the step calls sys.settrace, and AICF no longer sees what it reads");
    return nullptr;
  }
  Places::get().end();
  Py_RETURN_NONE;
}

PyObject* owners(PyObject*, PyObject*) { return Places::get().owners(); }

PyObject* taken(PyObject*, PyObject* absent) {
  forget_code();
  return Places::get().taken(absent);
}

PyMethodDef methods[] = {
    {"begin", begin, METH_VARARGS,
     "begin(folders of code that is not looked at, torch.Tensor, opaque types, types of arrays): record what "
     "this"
     " thread reads and writes from now on."},
    {"pause", pause, METH_NOARGS, "Record nothing until `resume`; whether this thread did."},
    {"resume", resume, METH_NOARGS, "Go on, in the thread that records; nothing in another one."},
    {"end", end, METH_NOARGS, "The step is over: see what is in each place, and record no more."},
    {"owners", owners, METH_NOARGS, "What has places, more than once where it has several."},
    {"taken", taken, METH_O, "Every place; afterwards none is known."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_functions(PyObject* module) { return PyModule_AddFunctions(module, methods); }

}  // namespace aicf::python
