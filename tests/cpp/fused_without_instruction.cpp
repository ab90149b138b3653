// Whether fused multiply-adds without the instruction are those of the library, bit for bit: any bits, and
// sums in which all but the rounding error of the product cancels.
#include <cmath>
#include <cstdio>
#include <random>

#include "kernels/common/vector_math.h"

#ifdef __FMA__
#error "compile for a processor that has no fused multiply-add"
#endif

int main() {
  std::mt19937 random(1);
  std::normal_distribution<float> number;
  for (int i = 0; i < 2'000'000; ++i) {
    const bool any = i % 2;
    const float x = any ? aicf::float_from_bits(static_cast<uint32_t>(random())) : number(random);
    const float y = any ? aicf::float_from_bits(static_cast<uint32_t>(random())) : number(random);
    const float z = any     ? aicf::float_from_bits(static_cast<uint32_t>(random()))
                    : i % 4 ? -x * y
                            : number(random);
    const float found = aicf::vector_math::fused(x, y, z), right = std::fma(x, y, z);
    if (aicf::float_bits(found) == aicf::float_bits(right) || (found != found && right != right)) continue;
    std::printf("%a * %a + %a: %a, expected %a\n", x, y, z, found, right);
    return 1;
  }
}
