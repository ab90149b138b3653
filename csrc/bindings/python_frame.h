// The frame that runs: its code, its function, its variables and its stack, for the versions of Python whose
// frames are known.
//
// The private part is here alone. Depths of the stack come from the code, by the effects that Python tells.
#pragma once
#define Py_BUILD_CORE  // pycore_frame.h
#include <Python.h>
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000
#define AICF_KNOWS_FRAMES 1
#include <internal/pycore_frame.h>
#endif
#undef Py_BUILD_CORE

namespace aicf::python {

#ifdef AICF_KNOWS_FRAMES
using Frame = _PyInterpreterFrame;

// Of the frame that runs in this thread.
inline Frame* running_frame() {
#if PY_VERSION_HEX >= 0x030D0000
  return PyThreadState_Get()->current_frame;
#else
  return PyThreadState_Get()->cframe->current_frame;
#endif
}

inline PyCodeObject* code_of(Frame* frame) {
#if PY_VERSION_HEX >= 0x030D0000
  return (PyCodeObject*)frame->f_executable;
#else
  return frame->f_code;
#endif
}

// Whether it is none of Python's, but where C has begun to run some.
inline bool is_entry(Frame* frame) {
#if PY_VERSION_HEX >= 0x030C0000
  return frame->owner == FRAME_OWNED_BY_CSTACK;
#else
  return frame == nullptr;
#endif
}

inline PyObject* function_of(Frame* frame) {
#if PY_VERSION_HEX >= 0x030C0000
  return frame->f_funcobj;
#else
  return (PyObject*)frame->f_func;
#endif
}
#else
struct Frame;
#endif

// The instruction at `offset` bytes of the code that `frame` runs is about to: note what it looks at.
void see_instruction(Frame* frame, PyCodeObject* code, int offset);
// A function begins.
void see_function(Frame* frame);
// Forget all code.
void forget_code();

}  // namespace aicf::python
