// The attributes of collectives.
#pragma once
#include "op/attrs.h"
#include "op/tensor_desc.h"

namespace aicf {

const Attr<std::string> kGroup{"group", std::nullopt};
constexpr Attr<int64_t> kRanks{"ranks", std::nullopt};
constexpr int64_t kMostRanks = 65536;

// The type in which numbers of the ranks are added up, and their mean is.
constexpr DType summed_in(DType dtype) { return dtype == DType::F64 ? DType::F64 : DType::F32; }

constexpr size_t kTurn = size_t{8} << 20;  // bytes of a rank that are gathered at once, to be added up

}  // namespace aicf
