// The kernel ops, and the kernels of each in the order in which they are preferred.
// RUN: aicf kernels gemm_epilogue --device cpu | filecheck %s
// RUN: aicf kernels rowwise | filecheck %s --check-prefix=GENERATED
// RUN: aicf kernels softmax --device cpu --json | filecheck %s --check-prefix=JSON
// RUN: not aicf kernels gemm_epilog 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not aicf kernels gemm_cpu_blas 2>&1 | filecheck %s --check-prefix=KERNEL

// CHECK:      gemm_epilogue: z = op(a) op(b) [+ bias]
// CHECK-NEXT:   sums in f32 (f64 for f64), in an order that the kernel fixes; each result rounded once
// CHECK-NEXT:   gemm_epilogue_cpu_blas   cpu             available
// CHECK-NEXT:   gemm_epilogue_cpu_plain  cpu             available
// CHECK-NOT:  sm_

// GENERATED:  gen_rowwise_…  generated for each use, from its scalar.body: LLVM IR on the CPU, CUDA C++ on a GPU

// JSON:       "version": 1,
// JSON:       "name": "softmax",
// JSON:       "id": "softmax_cpu",
// JSON-NEXT:  "device": "cpu",
// JSON-NEXT:  "min_sm": 0,

// UNKNOWN:    aicf: error: there is no kernel op 'gemm_epilog'; did you mean gemm_epilogue
// KERNEL:     aicf: error: 'gemm_cpu_blas' is a kernel of the op gemm: aicf kernels gemm
func.func private @nothing()
