// The plain convolution on the CPU: each element of the result is a loop, in double.
#include "kernels/common/cpu_parallel.h"
#include "kernels/common/cpu_types.h"
#include "kernels/convolution/launch.h"

namespace aicf {

using namespace cpu;

Status convolution_cpu(const Convolution& c, const LaunchContext&) {
  const int64_t terms = c.direction == Convolves::WeightGradient ? c.images * count_of(c.out)
                        : c.direction == Convolves::Forward      ? c.group_channels() * count_of(c.kernel)
                                                                 : c.group_outputs() * count_of(c.kernel);
  return with_float_type(c.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = static_cast<T*>(c.result());
    in_parallel(c.result_count(), grain_rows(terms), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        out[i] = narrow_double<T>(
            element_of_result<double, T>(c, i, [](T value) { return static_cast<double>(widen(value)); }));
    });
  });
}

}  // namespace aicf
