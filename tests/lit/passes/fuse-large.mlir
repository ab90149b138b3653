// A large pointwise op of 16 bits by itself: generated on a GPU, where a thread of a map moves 16 bytes at once. Small ones, and
// those of f32, keep their kernels.
// RUN: aicf-opt %s --fuse=target=sm_90 | filecheck %s
// RUN: aicf-opt %s --fuse | filecheck %s --check-prefix=CPU

// CHECK-LABEL: func.func @large
// CHECK:         kernel.map x(%x) {body = @gelu, shape = array<i64: 2048, 1024>}
// CPU-LABEL:   func.func @large
// CPU:           kernel.gelu
func.func @large(%x: tensor<2048x1024xbf16>) -> tensor<2048x1024xbf16> {
  %y = kernel.gelu x(%x) : tensor<2048x1024xbf16>
  func.return %y : tensor<2048x1024xbf16>
}

// CHECK-LABEL: func.func @small
// CHECK:         kernel.gelu
func.func @small(%x: tensor<204x1024xbf16>) -> tensor<204x1024xbf16> {
  %y = kernel.gelu x(%x) : tensor<204x1024xbf16>
  func.return %y : tensor<204x1024xbf16>
}

// CHECK-LABEL: func.func @wide
// CHECK:         kernel.gelu
func.func @wide(%x: tensor<2048x1024xf32>) -> tensor<2048x1024xf32> {
  %y = kernel.gelu x(%x) : tensor<2048x1024xf32>
  func.return %y : tensor<2048x1024xf32>
}
