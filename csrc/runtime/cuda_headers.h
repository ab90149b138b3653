// The device code of this repository that generated CUDA kernels bring along, as text. The build writes it
// into the module, so that it is there without a file beside it, in CPU-only builds too.
#pragma once
#include <map>
#include <string>

namespace aicf {

// csrc/kernels/<family>/device/, by the paths by which they are included, relative to csrc.
const std::map<std::string, std::string>& cuda_headers();

}  // namespace aicf
