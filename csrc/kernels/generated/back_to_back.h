// chain: products one behind the other in one launch, whose code the compiler writes from a body for each.
// What a link takes and what becomes of its values is text, `links`, one for each link:
//
//   b0.T x1 y0 -> write next sum, sum
//
// The product is by the transpose of operand b[0]; links may share one. The body takes the element of the
// product, then those of operand x[1] and of value 0, counted over all links. It gives two values: one is
// written to a result, multiplied by the next link, and summed over all rows into another result; of the
// other only the sum is written. A value that is not written says what it is rounded to, `next bf16`, `keep
// f16`; else it is an f32.
//
// `behind` has more results, behind those of the links: `y1.T y0` the product of two values over all rows,
// `y1.T a` of one and a; `a`, where a is an f32, a as it is rounded to the element type of b.
#pragma once
#include <string>
#include <vector>

#include "op/schema.h"

namespace aicf {

using Texts = std::vector<std::string>;

const Attr<Texts> kBodies{"bodies", std::nullopt};
const Attr<Texts> kLinks{"links", std::nullopt};
const Attr<Texts> kBehind{"behind", std::nullopt};

// (a, b..., x...) -> (y...): what each link takes has the shape of its product; what it gives is written with
// that shape, or summed to a row of it.
Status check_chain(const OpDesc& op);

}  // namespace aicf
