// RUN: aicf-opt %s --select-kernels | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s --select-kernels=target=sm_90 | filecheck %s --check-prefix=SM90
// RUN: aicf-opt %s --select-kernels='target="sm_90+cublaslt"' | filecheck %s --check-prefix=LT
// RUN: aicf-opt %s --select-kernels=target=sm_90 --select-kernels=target=sm_90 | filecheck %s --check-prefix=SM90

// The registry decides by op, element type, shape and target; no such device is needed. An id that is there is kept.
// CPU-LABEL:  func.func @choose
// CPU-SAME:     attributes
// CPU-NEXT:       {aicf.target = "cpu"}
// SM90-LABEL: func.func @choose
// SM90-SAME:    attributes
// SM90-NEXT:      {aicf.target = "sm_90"}
// LT-LABEL:   func.func @choose
// LT-SAME:      attributes
// LT-NEXT:        {aicf.target = "sm_90+cublaslt"}
func.func @choose(%a: tensor<64x64xf32>, %h: tensor<64x64xf16>, %o: tensor<64x63xf16>, %d: tensor<64x64xf64>) -> tensor<f32> {
  // CPU-NEXT:  kernel.gemm a(%a) b(%a) id "gemm_cpu_blas" :
  // SM90-NEXT: kernel.gemm a(%a) b(%a) id "gemm_f32_tiled_16x16" :
  // LT-NEXT:   kernel.gemm a(%a) b(%a) id "gemm_f32_tiled_16x16" :
  %0 = kernel.gemm a(%a) b(%a) : tensor<64x64xf32>
  // CPU-NEXT:  kernel.gemm a(%h) b(%h) id "gemm_cpu_plain" :
  // SM90-NEXT: kernel.gemm a(%h) b(%h) id "gemm_f16_tc" :
  // LT-NEXT:   kernel.gemm a(%h) b(%h) id "gemm_f16_tc" :
  %1 = kernel.gemm a(%h) b(%h) : tensor<64x64xf16>
  // CPU-NEXT:  kernel.gemm a(%d) b(%d) id "gemm_cpu_blas" :
  // SM90-NEXT: kernel.gemm a(%d) b(%d) id "gemm_f64_naive" :
  // LT-NEXT:   kernel.gemm a(%d) b(%d) id "gemm_f64_cublaslt" workspace 16384 :
  %2 = kernel.gemm a(%d) b(%d) : tensor<64x64xf64>
  // Two halves at a time need an even last dimension, and no broadcasting.
  // CPU-NEXT:  kernel.relu x(%h) id "relu_cpu" :
  // SM90-NEXT: kernel.relu x(%h) id "relu_f16_half2" :
  %3 = kernel.relu x(%h) : tensor<64x64xf16>
  // CPU-NEXT:  kernel.relu x(%o) id "relu_cpu" :
  // SM90-NEXT: kernel.relu x(%o) id "relu_f16" :
  %4 = kernel.relu x(%o) : tensor<64x63xf16>
  // SM90-NEXT: kernel.reduce_sum x(%a) {dims = array<i64: 0, 1>} id "reduce_sum_f32" :
  %5 = kernel.reduce_sum x(%a) {dims = array<i64: 0, 1>} : (tensor<64x64xf32>) -> tensor<f32>
  func.return %5 : tensor<f32>
}

// What may be rounded to TF32 is rounded where there are tensor cores for it; the CPU computes in f32. The library is not asked
// for a bias gradient beside it.
// CPU-LABEL:  func.func @tf32
// SM90-LABEL: func.func @tf32
// LT-LABEL:   func.func @tf32
func.func @tf32(%a: tensor<512x512xf32>) -> tensor<512x512xf32> {
  // CPU:  kernel.gemm a(%a) b(%a) {allow_tf32 = true} id "gemm_cpu_blas" :
  // SM90: kernel.gemm a(%a) b(%a) {allow_tf32 = true} id "gemm_tf32_tc" :
  // LT:   kernel.gemm a(%a) b(%a) {allow_tf32 = true} id "gemm_tf32_cublaslt" workspace 8388608 :
  %0 = kernel.gemm a(%a) b(%a) {allow_tf32 = true} : tensor<512x512xf32>
  // SM90: kernel.gemm_epilogue {{.*}} id "gemm_epilogue_tf32_tc"
  // LT:   kernel.gemm_epilogue {{.*}} id "gemm_epilogue_tf32_cublaslt"
  %1 = kernel.gemm_epilogue a(%0) b(%a) -> out {act = "relu", allow_tf32 = true} : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  // LT: kernel.gemm_epilogue {{.*}} -> out, bias_grad {{.*}} id "gemm_epilogue_tf32_tc"
  %2, %3 = kernel.gemm_epilogue a(%1) b(%a) -> out, bias_grad {allow_tf32 = true, trans_a = true} : (tensor<512x512xf32>, tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512xf32>)
  func.return %2 : tensor<512x512xf32>
}

// -----

// What is worth a launch of the library; in 16 bits also by how rows lie.
// LT-LABEL:   func.func @large
func.func @large(%a: tensor<1024x1024xf32>, %h: tensor<1024x1024xf16>, %o: tensor<1024x1025xf16>, %d: tensor<1024x1024xf64>) -> tensor<1024x1024xf64> {
  // LT:        id "gemm_f32_tiled_128x64" :
  %0 = kernel.gemm a(%a) b(%a) : tensor<1024x1024xf32>
  // LT:        id "gemm_f16_cublaslt" workspace 33554432 :
  %1 = kernel.gemm a(%h) b(%h) : tensor<1024x1024xf16>
  // LT:        id "gemm_f16_tc"
  %2 = kernel.gemm a(%h) b(%o) : (tensor<1024x1024xf16>, tensor<1024x1025xf16>) -> tensor<1024x1025xf16>
  // LT:        id "gemm_f64_cublaslt" workspace 33554432 :
  %3 = kernel.gemm a(%d) b(%d) : tensor<1024x1024xf64>
  func.return %3 : tensor<1024x1024xf64>
}
