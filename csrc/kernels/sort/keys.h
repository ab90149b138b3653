// The order of elements as that of unsigned numbers: torch's, in which NaN is the largest, all NaN are alike
// and so are both zeros.
#pragma once
#include <cstdint>
#include <string>

#include "kernels/eltwise/ops.h"  // AICF_HD
#include "op/status.h"
#include "op/tensor_desc.h"

namespace aicf {

// Floats by their bits; `infinity` has those of +infinity. A key has no branches: with them a GPU would wait
// for each element before it reads the next.
template <class Stored, class Number, Stored infinity>
struct FloatOrder {
  using Element = Stored;
  using Key = Number;
  static constexpr int kBits = 8 * sizeof(Stored);
  AICF_HD static Key key(Element x) {
    constexpr Element kSign = static_cast<Element>(Element(1) << (kBits - 1));
    const Element magnitude = x & static_cast<Element>(kSign - 1);
    const Element ordered = x & kSign ? static_cast<Element>(~x) : static_cast<Element>(x | kSign);
    return magnitude > infinity ? static_cast<Element>(~Element(0)) : magnitude == 0 ? kSign : ordered;
  }
};

template <class Number>
struct IntegerOrder {
  using Element = Number;
  using Key = Number;
  static constexpr int kBits = 8 * sizeof(Number);
  AICF_HD static Key key(Element x) { return x ^ Key(1) << (kBits - 1); }
};

struct BoolOrder {
  using Element = uint8_t;
  using Key = uint32_t;
  static constexpr int kBits = 1;
  AICF_HD static Key key(Element x) { return x; }
};

// All ones.
template <class Order>
constexpr typename Order::Key kLastKey = static_cast<typename Order::Key>(~typename Order::Key(0)) >>
                                         (8 * sizeof(typename Order::Key) - Order::kBits);

// Ascending keys are a descending order where `flip` is kLastKey, and an ascending one where it is 0.
template <class Order>
AICF_HD typename Order::Key key_of(typename Order::Element x, typename Order::Key flip) {
  return Order::key(x) ^ flip;
}

template <class T>
struct OrderTag {
  using type = T;
};

// Calls f(OrderTag<Order>{}).
template <class F>
Status with_order(DType dtype, F&& f) {
  switch (dtype) {
    case DType::F32:
      return f(OrderTag<FloatOrder<uint32_t, uint32_t, 0x7f800000u>>{});
    case DType::F64:
      return f(OrderTag<FloatOrder<uint64_t, uint64_t, 0x7ff0000000000000u>>{});
    case DType::F16:
      return f(OrderTag<FloatOrder<uint16_t, uint32_t, 0x7c00u>>{});
    case DType::BF16:
      return f(OrderTag<FloatOrder<uint16_t, uint32_t, 0x7f80u>>{});
    case DType::I64:
      return f(OrderTag<IntegerOrder<uint64_t>>{});
    case DType::I32:
      return f(OrderTag<IntegerOrder<uint32_t>>{});
    case DType::I1:
      return f(OrderTag<BoolOrder>{});
  }
  return Status::invalid(std::string("no order of ") + dtype_name(dtype));
}

}  // namespace aicf
