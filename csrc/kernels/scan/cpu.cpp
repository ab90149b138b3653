// scan on the CPU: a loop along n, in double; neighbours of the other dimensions side by side.
#include "kernels/common/cpu_parallel.h"
#include "kernels/common/cpu_types.h"
#include "kernels/scan/rules.h"

namespace aicf {
namespace {

using namespace cpu;

constexpr int64_t kColumns = 256;  // that are walked together

template <class T>
using Value = std::conditional_t<std::is_integral_v<T>, int64_t, double>;

template <class T>
Value<T> loaded(T x) {
  if constexpr (std::is_integral_v<T>)
    return x;
  else
    return widen(x);
}

template <class T, class V>
T stored(V x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(x);
  else
    return narrow_double<T>(x);
}

// Walks `count` neighbours, the first of which is at `at`; count is a constant where there is one.
template <class Rule, class T, class Y, class Count>
void walk(const Scan& s, int64_t at, Count count) {
  const T *x = static_cast<const T*>(s.x) + at, *factor = static_cast<const T*>(s.factor);
  if (Rule::kHasFactor) factor += at;
  Y* y = static_cast<Y*>(s.y) + at;
  typename Rule::State states[std::is_same_v<Count, int64_t> ? kColumns : 1];
  for (int64_t j = 0; j < count; ++j) states[j] = Rule::none();
  for (int64_t step = 0; step < s.n; ++step) {
    const int64_t i = s.reverse ? s.n - 1 - step : step, row = i * s.inner;
    for (int64_t j = 0; j < count; ++j) {
      const auto f = Rule::kHasFactor ? loaded(factor[row + j]) : Value<T>(0);
      states[j] = Rule::joined(states[j], Rule::of(loaded(x[row + j]), f, i));
      y[row + j] = stored<Y>(Rule::value(states[j]));
    }
  }
}

template <class T>
Status scan_numbers(const Scan& s) {
  return with_rule<Value<T>>(s.kind, [&](auto tag) {
    using Rule = typename decltype(tag)::type;
    using Y = std::conditional_t<Rule::kIsPlace, int64_t, T>;
    if (s.inner == 1) {
      in_parallel(s.outer, grain_rows(s.n), [&](int64_t begin, int64_t end) {
        constexpr std::integral_constant<int64_t, 1> kOne;
        for (int64_t row = begin; row < end; ++row) walk<Rule, T, Y>(s, row * s.n, kOne);
      });
      return Status::ok();
    }
    const int64_t strips = (s.inner + kColumns - 1) / kColumns;
    in_parallel(
        s.outer * strips, grain_rows(s.n * std::min(s.inner, kColumns)), [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) {
            const int64_t column = k % strips * kColumns;
            walk<Rule, T, Y>(s, k / strips * s.n * s.inner + column, std::min(kColumns, s.inner - column));
          }
        });
    return Status::ok();
  });
}

}  // namespace

Status scan_cpu(const Scan& s, const LaunchContext&) {
  switch (s.dtype) {
    case DType::F32:
      return scan_numbers<float>(s);
    case DType::F64:
      return scan_numbers<double>(s);
    case DType::F16:
      return scan_numbers<Half>(s);
    case DType::BF16:
      return scan_numbers<BFloat16>(s);
    case DType::I64:
      return scan_numbers<int64_t>(s);
    default:
      return scan_numbers<int32_t>(s);
  }
}

}  // namespace aicf
