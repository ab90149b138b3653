// Programmatic dependent launch: in a captured graph a kernel may be brought to the processors while the
// launch in front of it still runs, so that only its work waits and not its start. From sm_90 on.
//
// Every other kernel of this project begins with dependency_wait(), before it reads or writes any memory but
// its arguments, and every thread of it. Generated products may read operands before it, of which the rules
// of a plan say that no launch writes them that may be right in front (aicf_mlir/dialects/plan/ahead.py). So
// when a thread comes behind that line, the launches that have an edge to this one are complete and what they
// wrote is seen. Each of them began with the same wait, or behind an edge of the full kind, so whatever was
// in front of them is complete as well, and so on: all that is in front in the graph, just as with full
// edges. A kernel may therefore overwrite what any earlier one has read (write after read), also between the
// phases of one launch, which hand on a workspace, and between replays. What is let go early is the start of
// the launch behind, which waits in turn.
//
// A kernel that does not wait (one of a library, one that is generated for more blocks than a chip holds at
// once, a copy or a fill of memory) is recorded with full edges; it lets nothing go before its end, or does
// so knowing that its successor waits for its end.
#pragma once
#include <cuda_runtime.h>

#include <unordered_map>

#include "op/variant.h"

namespace aicf::cuda {

// The first statement of every prebuilt kernel, and of generated text;
// tests/py/codegen/test_dependent_launch.py looks at all of them.
__device__ __forceinline__ void dependency_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Whether captures shall have programmatic edges; AICF_PDL=0 in the environment says no.
bool wants_programmatic_edges();

// Lets the launch of `kernel`, which begins with dependency_wait() where it is compiled for sm_90 or later,
// be recorded with a programmatic edge, where ctx.programmatic asks for it: through `attribute`, which must
// live until the launch. Nothing changes where the kernel was compiled for less, and so does not wait, and
// where what is in front of it is not exactly one kernel.
Status allow_programmatic(const LaunchContext& ctx, const void* kernel, cudaLaunchConfig_t* config,
                          cudaLaunchAttribute* attribute);

// What each stream of an open capture has recorded last: behind an event of another stream a launch has a
// further dependency, or one that is not of its own stream, and gets full edges.
class CaptureTails {
 public:
  void clear() { last_.clear(); }
  // Whether the next node of `stream` depends on what was recorded last on it, and on nothing else.
  Status is_alone(cudaStream_t stream, bool* out);
  // Called behind each launch on it.
  Status recorded(cudaStream_t stream);

 private:
  std::unordered_map<cudaStream_t, cudaGraphNode_t> last_;
};

}  // namespace aicf::cuda
