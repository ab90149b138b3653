// Of products of f32 the library takes large ones of short sums; parts of long sums and sums of few terms stay ours.
// RUN: aicf-opt %s --select-kernels='target="sm_90+cublaslt"' | filecheck %s

// CHECK-LABEL: func.func @scores
// CHECK:  kernel.gemm {{.*}} id "gemm_f32_cublaslt"
func.func @scores(%q: tensor<256x256x64xf32>, %k: tensor<256x256x64xf32>) -> tensor<256x256x256xf32> {
  %0 = kernel.gemm a(%q) b(%k) {trans_b = true} : (tensor<256x256x64xf32>, tensor<256x256x64xf32>) -> tensor<256x256x256xf32>
  func.return %0 : tensor<256x256x256xf32>
}

// CHECK-LABEL: func.func @values
// CHECK:  kernel.gemm {{.*}} id "gemm_f32_tiled_128x64"
func.func @values(%a: tensor<1024x1024xf32>, %b: tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {
  %0 = kernel.gemm a(%a) b(%b) : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  func.return %0 : tensor<1024x1024xf32>
}

// CHECK-LABEL: func.func @parts
// CHECK:  kernel.gemm {{.*}} id "gemm_f32_tiled_64x32"
func.func @parts(%x: tensor<50x2000x64xf32>, %g: tensor<50x2000x64xf32>) -> tensor<50x64x64xf32> {
  %0 = kernel.gemm a(%x) b(%g) {trans_a = true} : (tensor<50x2000x64xf32>, tensor<50x2000x64xf32>) -> tensor<50x64x64xf32>
  func.return %0 : tensor<50x64x64xf32>
}

// CHECK-LABEL: func.func @few_parts
// CHECK:  kernel.gemm {{.*}} id "gemm_f32_cublaslt"
func.func @few_parts(%x: tensor<20x8000x64xf32>, %g: tensor<20x8000x64xf32>) -> tensor<20x64x64xf32> {
  %0 = kernel.gemm a(%x) b(%g) {trans_a = true} : (tensor<20x8000x64xf32>, tensor<20x8000x64xf32>) -> tensor<20x64x64xf32>
  func.return %0 : tensor<20x64x64xf32>
}

// CHECK-LABEL: func.func @few_terms
// CHECK:  kernel.gemm {{.*}} id "gemm_f32_short_sums"
func.func @few_terms(%x: tensor<65536x16xf32>, %w: tensor<16x512xf32>) -> tensor<65536x512xf32> {
  %0 = kernel.gemm a(%x) b(%w) : (tensor<65536x16xf32>, tensor<16x512xf32>) -> tensor<65536x512xf32>
  func.return %0 : tensor<65536x512xf32>
}
