// Ops on the elements of a product are its generated epilogue.
// RUN: aicf-opt %s --fuse-epilogues | filecheck %s
// RUN: aicf-opt %s --fuse-epilogues=early | filecheck %s --check-prefix=EARLY

// CHECK-LABEL: func.func @elementwise
// CHECK:  %s = kernel.gemm_map a(%x) b(%w) x(%r) {body = @silu_add}
// CHECK:  : (tensor<4x8xf32>, tensor<8x2xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
// CHECK:  func.return %s : tensor<4x2xf32>
// EARLY-LABEL: func.func @elementwise
// EARLY:  %s = kernel.gemm_map a(%x) b(%w) x(%r) {body = @silu_add}
// EARLY:  : (tensor<4x8xf32>, tensor<8x2xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
// EARLY:  func.return %s : tensor<4x2xf32>
func.func @elementwise(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>, %r: tensor<4x2xf32>) -> tensor<4x2xf32> {
  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %z = kernel.silu x(%y) : tensor<4x2xf32>
  %s = kernel.add x(%z) y(%r) : tensor<4x2xf32>
  func.return %s : tensor<4x2xf32>
}

// What only a sum reads is left to the sum at first: it needs no memory there.
// CHECK-LABEL: func.func @summed
// CHECK:  %z = kernel.gemm_map a(%x) b(%w) {body = @silu} : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
// CHECK:  %s = kernel.reduce_sum x(%z) {dims = array<i64: 0>} : (tensor<4x2xf32>) -> tensor<2xf32>
// CHECK:  func.return %s : tensor<2xf32>
// EARLY-LABEL: func.func @summed
// EARLY:  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
// EARLY:  %z = kernel.silu x(%y) : tensor<4x2xf32>
// EARLY:  %s = kernel.reduce_sum x(%z) {dims = array<i64: 0>} : (tensor<4x2xf32>) -> tensor<2xf32>
// EARLY:  func.return %s : tensor<2xf32>
func.func @summed(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>) -> tensor<2xf32> {
  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %z = kernel.silu x(%y) : tensor<4x2xf32>
  %s = kernel.reduce_sum x(%z) {dims = array<i64: 0>} : (tensor<4x2xf32>) -> tensor<2xf32>
  func.return %s : tensor<2xf32>
}
