// Bias, activation and their gradients are epilogues of prebuilt products.
// RUN: aicf-opt %s --fuse-activations | filecheck %s
// RUN: aicf-opt %s --fuse-activations=target=sm_90 | filecheck %s

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
