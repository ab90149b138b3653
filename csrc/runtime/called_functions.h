// The functions that generated code of the CPU calls, by name: those of <cmath>, "exp" of doubles and "expf"
// of floats, and the products of kernels/gemm/cpu_product.h.
#pragma once
#include <string>

#include "kernels/gemm/cpu_product.h"

namespace aicf {

void* called_function(const std::string& name);  // null where there is none
std::string called_functions();                  // all names, in order

using FindProduct = cpu::ProductFunction (*)(const std::string& name);
// Products are those of another library of kernels from now on; call before any code is loaded.
void use_products(FindProduct find);

}  // namespace aicf
