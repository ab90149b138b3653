// The attributes of collectives.
#pragma once
#include "op/attrs.h"

namespace aicf {

const Attr<std::string> kGroup{"group", std::nullopt};
constexpr Attr<int64_t> kRanks{"ranks", std::nullopt};
constexpr int64_t kMostRanks = 65536;

}  // namespace aicf
