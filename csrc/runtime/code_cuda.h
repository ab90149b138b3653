// What only the code of a CUDA kernel has: what its functions need of a processor.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "runtime/code.h"

namespace aicf {

struct FunctionNeeds {
  std::string function;
  int registers;       // 32 bits wide, of a thread
  size_t local_bytes;  // of a thread, in memory: registers that were spilled, and arrays that have an index
};

// Of every phase, on cuda:`device`; loads the code there.
Status needs_of_cuda_code(const KernelCode& code, int device, std::vector<FunctionNeeds>* out);

}  // namespace aicf
