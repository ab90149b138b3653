// CPU kernels compiled for a newer processor than the module itself: a portable build brings them as
// libraries beside it, and the one that fits is loaded once, at import.
#pragma once
#include <string>

#include "op/status.h"

namespace aicf {

// Every CPU kernel runs from the library at `path` from now on, which takes its BLAS from `blas_path`. Call
// before any step or call exists. Code::Device if it cannot be loaded or lacks a kernel, with the reason.
Status load_cpu_kernels(const std::string& path, const std::string& blas_path);

}  // namespace aicf
