// cuBLASLt, found at run time: nothing of it is needed to build. What products need of its C interface,
// declared here with the numbers of cublasLt.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "op/status.h"

namespace aicf::cublaslt {

enum DataType { kF32 = 0, kF64 = 1, kF16 = 2, kBF16 = 14 };
enum ComputeType { kCompute32F = 68, kCompute64F = 70, kCompute32FFastTF32 = 77 };
enum Operation { kAsItIs = 0, kTransposed = 1 };
enum Epilogue { kRelu = 2, kBias = 4, kReluBias = 6 };
enum DescriptorAttribute { kTransA = 3, kTransB = 4, kEpilogue = 7, kBiasPointer = 8 };
enum LayoutAttribute { kBatchCount = 5, kBatchStride = 6 };
// Alignments of the addresses of A, B, C and D follow each other.
enum PreferenceAttribute { kMaxWorkspace = 1, kReductionMask = 3, kAlignmentOfA = 5 };
// Partial sums are added in f32 (f64) in the workspace, never in the type of the result.
constexpr uint32_t kReduceInComputeType = 2;

struct Algorithm {
  uint64_t opaque[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

using Object = void*;  // a handle, a descriptor, a layout, a preference

struct Library {
  size_t (*version)();
  const char* (*status_name)(int);
  int (*create)(Object*);
  int (*create_descriptor)(Object*, int compute, int scale);
  int (*set_descriptor)(Object, int attribute, const void*, size_t);
  int (*destroy_descriptor)(Object);
  int (*create_layout)(Object*, int type, uint64_t rows, uint64_t columns, int64_t leading);
  int (*set_layout)(Object, int attribute, const void*, size_t);
  int (*destroy_layout)(Object);
  int (*create_preference)(Object*);
  int (*set_preference)(Object, int attribute, const void*, size_t);
  int (*destroy_preference)(Object);
  int (*heuristic)(Object handle, Object descriptor, Object a, Object b, Object c, Object d,
                   Object preference, int wanted, Heuristic*, int* found);
  int (*attribute)(const Algorithm*, int attribute, void*, size_t, size_t* written);
  int (*multiply)(Object handle, Object descriptor, const void* alpha, const void* a, Object a_layout,
                  const void* b, Object b_layout, const void* beta, const void* c, Object c_layout, void* d,
                  Object d_layout, const Algorithm*, void* workspace, size_t workspace_bytes, void* stream);
};

// Found as open.h says; null without one. The same for as long as the process lives.
const Library* library();
inline bool available() { return library() != nullptr; }
constexpr const char* kMissing =
    "needs cuBLASLt: libcublasLt.so.13 or .12, which torch for CUDA brings, and no AICF_CUBLASLT=0 in the "
    "environment; or make the plan for a target without +cublaslt";

// What decides the bits of an algorithm's results, in words: "id 66, tile 24, stages 35, splitk 1, …".
std::string name_of(const Library& lib, const Algorithm& algorithm);

Status check(const Library& lib, int status, const char* what);

}  // namespace aicf::cublaslt
