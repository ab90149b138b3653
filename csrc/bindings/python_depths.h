// What is known of a code object: its instructions, and how deep the stack is before each.
#pragma once
#include "bindings/python_places.h"

namespace aicf::python {

struct Code {
  explicit Code(PyCodeObject* code);
  // With what EXTENDED_ARG puts in front of it.
  int argument(int at) const;

  Owned object, text;       // text: the instructions as the compiler wrote them, two bytes each
  std::vector<int> depths;  // by instruction; -1 where none begins, or none is reached
};

}  // namespace aicf::python
