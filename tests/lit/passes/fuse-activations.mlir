// Bias, activation and their gradients are epilogues of prebuilt products.
// RUN: aicf-opt %s --fuse-activations | filecheck %s
// RUN: aicf-opt %s --fuse-activations=target=sm_90 | filecheck %s
// RUN: aicf-opt %s --fuse-activations | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s --fuse-activations='target="sm_90+cudnn"' | filecheck %s --check-prefix=GPU

// The value before the activation is a second result, since something else reads it.
// CHECK-LABEL: func.func @layer
// CHECK:  %a, %z = kernel.gemm_epilogue a(%x) b(%w) bias(%b) -> out, pre {act = "gelu"}
// CHECK:  : (tensor<4x8xf32>, tensor<8x2xf32>, tensor<2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>)
// CHECK:  func.return %z, %a : tensor<4x2xf32>, tensor<4x2xf32>
func.func @layer(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>, %b: tensor<2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>) {
  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %z = kernel.bias_add x(%y) bias(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  %a = kernel.gelu x(%z) : tensor<4x2xf32>
  func.return %z, %a : tensor<4x2xf32>, tensor<4x2xf32>
}

// The gradient of a bias is a second result of the product that makes that of the weight.
// CHECK-LABEL: func.func @backward
// CHECK:  %d = kernel.gemm_epilogue a(%g) b(%w) saved(%y) -> out {act_grad = "relu"}
// CHECK:  : (tensor<4x2xf32>, tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK:  %dw, %db = kernel.gemm_epilogue a(%g) b(%y) -> out, bias_grad {trans_a = true}
// CHECK:  : (tensor<4x2xf32>, tensor<4x8xf32>) -> (tensor<2x8xf32>, tensor<2xf32>)
// CHECK:  func.return %d, %dw, %db : tensor<4x8xf32>, tensor<2x8xf32>, tensor<2xf32>
func.func @backward(%g: tensor<4x2xf32>, %w: tensor<2x8xf32>, %y: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<2x8xf32>, tensor<2xf32>) {
  %dy = kernel.gemm a(%g) b(%w) : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %d = kernel.relu_bwd dy(%dy) saved(%y) : tensor<4x8xf32>
  %dw = kernel.gemm a(%g) b(%y) {trans_a = true} : (tensor<4x2xf32>, tensor<4x8xf32>) -> tensor<2x8xf32>
  %db = kernel.reduce_sum x(%g) {dims = array<i64: 0>} : (tensor<4x2xf32>) -> tensor<2xf32>
  func.return %d, %dw, %db : tensor<4x8xf32>, tensor<2x8xf32>, tensor<2xf32>
}

// Of other ops fuse-epilogues makes generated epilogues.
// CHECK-LABEL: func.func @another
// CHECK:  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
// CHECK:  %z = kernel.neg x(%y) : tensor<4x2xf32>
// CHECK:  func.return %z : tensor<4x2xf32>
func.func @another(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>) -> tensor<4x2xf32> {
  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %z = kernel.neg x(%y) : tensor<4x2xf32>
  func.return %z : tensor<4x2xf32>
}

// A relu is part of a convolution: not where the sums are read too, nor where another kernel would run it, as of groups on a GPU.
// CPU-LABEL: func.func @images
// CPU:         %r = kernel.convolution x(%x) w(%w) bias(%b) {act = "relu"
// CPU:         %s = kernel.relu x(%z)
// CPU:         %t = kernel.relu x(%v)
// GPU-LABEL: func.func @images
// GPU:         %r = kernel.convolution x(%x) w(%w) bias(%b) {act = "relu"
// GPU:         %s = kernel.relu x(%z)
// GPU:         %t = kernel.relu x(%v)
func.func @images(%x: tensor<2x5x5x16xf32>, %w: tensor<16x3x3x16xf32>, %b: tensor<16xf32>, %d: tensor<16x3x3x8xf32>) -> (tensor<2x5x5x16xf32>, tensor<2x5x5x16xf32>, tensor<2x5x5x16xf32>, tensor<2x5x5x16xf32>) {
  %y = kernel.convolution x(%x) w(%w) bias(%b) {channels_last = true, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 5, 5>} : (tensor<2x5x5x16xf32>, tensor<16x3x3x16xf32>, tensor<16xf32>) -> tensor<2x5x5x16xf32>
  %r = kernel.relu x(%y) : tensor<2x5x5x16xf32>
  %z = kernel.convolution x(%x) w(%w) {channels_last = true, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 5, 5>} : (tensor<2x5x5x16xf32>, tensor<16x3x3x16xf32>) -> tensor<2x5x5x16xf32>
  %s = kernel.relu x(%z) : tensor<2x5x5x16xf32>
  %v = kernel.convolution x(%x) w(%d) {channels_last = true, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 5, 5>, groups = 2} : (tensor<2x5x5x16xf32>, tensor<16x3x3x8xf32>) -> tensor<2x5x5x16xf32>
  %t = kernel.relu x(%v) : tensor<2x5x5x16xf32>
  func.return %r, %s, %z, %t : tensor<2x5x5x16xf32>, tensor<2x5x5x16xf32>, tensor<2x5x5x16xf32>, tensor<2x5x5x16xf32>
}
