#include "runtime/called_functions.h"

#include <cmath>
#include <map>

namespace aicf {
namespace {

template <class T>
void* one(T (*function)(T)) {
  return reinterpret_cast<void*>(function);
}
template <class T>
void* two(T (*function)(T, T)) {
  return reinterpret_cast<void*>(function);
}
template <class T>
void* three(T (*function)(T, T, T)) {
  return reinterpret_cast<void*>(function);
}

// Of doubles and, behind an f, of floats.
#define AICF_ROWS(arity, name) \
  {#name, arity<double>(std::name)}, { #name "f", arity<float>(std::name) }

const std::map<std::string, void*>& table() {
  static const std::map<std::string, void*> functions = {
      AICF_ROWS(one, acos),  AICF_ROWS(one, acosh),    AICF_ROWS(one, asin),      AICF_ROWS(one, asinh),
      AICF_ROWS(one, atan),  AICF_ROWS(one, atanh),    AICF_ROWS(one, cbrt),      AICF_ROWS(one, ceil),
      AICF_ROWS(one, cos),   AICF_ROWS(one, cosh),     AICF_ROWS(one, erf),       AICF_ROWS(one, erfc),
      AICF_ROWS(one, exp),   AICF_ROWS(one, exp2),     AICF_ROWS(one, expm1),     AICF_ROWS(one, fabs),
      AICF_ROWS(one, floor), AICF_ROWS(one, lgamma),   AICF_ROWS(one, log),       AICF_ROWS(one, log10),
      AICF_ROWS(one, log1p), AICF_ROWS(one, log2),     AICF_ROWS(one, nearbyint), AICF_ROWS(one, rint),
      AICF_ROWS(one, round), AICF_ROWS(one, sin),      AICF_ROWS(one, sinh),      AICF_ROWS(one, sqrt),
      AICF_ROWS(one, tan),   AICF_ROWS(one, tanh),     AICF_ROWS(one, tgamma),    AICF_ROWS(one, trunc),
      AICF_ROWS(two, atan2), AICF_ROWS(two, copysign), AICF_ROWS(two, fmax),      AICF_ROWS(two, fmin),
      AICF_ROWS(two, fmod),  AICF_ROWS(two, hypot),    AICF_ROWS(two, pow),       AICF_ROWS(two, remainder),
      AICF_ROWS(three, fma)};
  return functions;
}

#undef AICF_ROWS

FindProduct find_product = cpu::product_function;

}  // namespace

void* called_function(const std::string& name) {
  const auto found = table().find(name);
  return found == table().end() ? reinterpret_cast<void*>(find_product(name)) : found->second;
}

std::string called_functions() {
  std::string names;
  for (const auto& entry : table()) names += entry.first + ", ";
  return names + "product_f32, product_f64, product_f16, product_bf16";
}

void use_products(FindProduct find) { find_product = find; }

}  // namespace aicf
