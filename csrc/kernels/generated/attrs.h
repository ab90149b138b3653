// Attributes that several ops with generated kernels have.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "op/attrs.h"

namespace aicf {

// The scalar.body that says what is computed.
inline const Attr<std::string> kBody{"body", std::nullopt};
// The operands, by their numbers, that a kernel reads before it waits for the launch in front.
inline const Attr<std::vector<int64_t>> kAhead{"ahead", std::nullopt};

}  // namespace aicf
