// On a GPU a long sum of few results is a batch of parts, which are added in order.
// RUN: aicf-opt %s --fuse-tall-products=target=sm_90 | filecheck %s
// RUN: aicf-opt %s --fuse-tall-products | filecheck %s --check-prefix=CPU

// CHECK-LABEL: func.func @gradient
// CHECK:  %0 = kernel.reshape %dy : (tensor<100000x64xf32>) -> tensor<50x2000x64xf32>
// CHECK:  %1 = kernel.reshape %x : (tensor<100000x64xf32>) -> tensor<50x2000x64xf32>
// CHECK:  %2 = kernel.gemm a(%0) b(%1) {trans_a = true}
// CHECK:  : (tensor<50x2000x64xf32>, tensor<50x2000x64xf32>) -> tensor<50x64x64xf32>
// CHECK:  %dw = kernel.reduce_sum x(%2) {dims = array<i64: 0>} : (tensor<50x64x64xf32>) -> tensor<64x64xf32>
// CHECK:  func.return %dw : tensor<64x64xf32>
// CPU-LABEL: func.func @gradient
// CPU:    %dw = kernel.gemm a(%dy) b(%x) {trans_a = true}
// CPU:    : (tensor<100000x64xf32>, tensor<100000x64xf32>) -> tensor<64x64xf32>
// CPU:    func.return %dw : tensor<64x64xf32>
func.func @gradient(%dy: tensor<100000x64xf32>, %x: tensor<100000x64xf32>) -> tensor<64x64xf32> {
  %dw = kernel.gemm a(%dy) b(%x) {trans_a = true} : (tensor<100000x64xf32>, tensor<100000x64xf32>) -> tensor<64x64xf32>
  func.return %dw : tensor<64x64xf32>
}

// CHECK-LABEL: func.func @wide
// CHECK:  %dw = kernel.gemm a(%dy) b(%x) {trans_a = true}
// CHECK:  : (tensor<4096x2048xf32>, tensor<4096x2048xf32>) -> tensor<2048x2048xf32>
// CHECK:  func.return %dw : tensor<2048x2048xf32>
// CPU-LABEL: func.func @wide
// CPU:    %dw = kernel.gemm a(%dy) b(%x) {trans_a = true}
// CPU:    : (tensor<4096x2048xf32>, tensor<4096x2048xf32>) -> tensor<2048x2048xf32>
// CPU:    func.return %dw : tensor<2048x2048xf32>
func.func @wide(%dy: tensor<4096x2048xf32>, %x: tensor<4096x2048xf32>) -> tensor<2048x2048xf32> {
  %dw = kernel.gemm a(%dy) b(%x) {trans_a = true} : (tensor<4096x2048xf32>, tensor<4096x2048xf32>) -> tensor<2048x2048xf32>
  func.return %dw : tensor<2048x2048xf32>
}
