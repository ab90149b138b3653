// The functions of <cmath> that generated code calls, by name: "exp" of doubles, "expf" of floats.
#pragma once
#include <string>

namespace aicf {

void* math_function(const std::string& name);  // null where there is none
std::string math_functions();                  // all names, in order

}  // namespace aicf
