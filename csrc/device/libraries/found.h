// The libraries that this process has found.
#pragma once
#include <cstddef>

#include "op/libraries.h"

namespace aicf {

// 0 where it is missing, or not asked for.
size_t version_of(Library library);
Libraries found_libraries();

}  // namespace aicf
