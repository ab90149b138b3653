#include "runtime/math_table.h"

#include <cmath>
#include <map>

namespace aicf {
namespace {

#define AICF_UNARY(X)                                                                                     \
  X(acos)                                                                                                 \
  X(acosh)                                                                                                \
  X(asin) X(asinh) X(atan) X(atanh) X(cbrt) X(ceil) X(cos) X(cosh) X(erf) X(erfc) X(exp) X(exp2) X(expm1) \
      X(fabs) X(floor) X(lgamma) X(log) X(log10) X(log1p) X(log2) X(nearbyint) X(rint) X(round) X(sin)    \
          X(sinh) X(sqrt) X(tan) X(tanh) X(tgamma) X(trunc)
#define AICF_BINARY(X) X(atan2) X(copysign) X(fmax) X(fmin) X(fmod) X(hypot) X(pow) X(remainder)

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

const std::map<std::string, void*>& table() {
  static const std::map<std::string, void*> functions = {
#define X(name) {#name, one<double>(std::name)}, {#name "f", one<float>(std::name)},
      AICF_UNARY(X)
#undef X
#define X(name) {#name, two<double>(std::name)}, {#name "f", two<float>(std::name)},
          AICF_BINARY(X)
#undef X
              {"fma", three<double>(std::fma)},
      {"fmaf", three<float>(std::fma)},
  };
  return functions;
}

}  // namespace

void* math_function(const std::string& name) {
  const auto found = table().find(name);
  return found == table().end() ? nullptr : found->second;
}

std::string math_functions() {
  std::string names;
  for (const auto& entry : table()) names += (names.empty() ? "" : ", ") + entry.first;
  return names;
}

}  // namespace aicf
