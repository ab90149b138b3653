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

// A library divides the sums of a large result itself. Where it takes no such rows, the parts fill the chip with tiles of 128 x 128.
// RUN: aicf-opt %s --fuse-tall-products='target="sm_90+cublaslt"' | filecheck %s --check-prefix=LIBRARY
// LIBRARY-LABEL: func.func @large
// LIBRARY:         %aligned = kernel.gemm a(%x) b(%y) : (tensor<256x65536xf32>, tensor<65536x320xf32>) -> tensor<256x320xf32>
// LIBRARY:         kernel.gemm a(%{{.*}}) b(%{{.*}})
// LIBRARY-NEXT:    : (tensor<32x256x2048xf32, strided<[2048, 65536, 1]>>, tensor<32x2048x319xf32>) -> tensor<32x256x319xf32>
// CHECK-LABEL: func.func @large
// CHECK:         -> tensor<32x256x320xf32>
// CHECK:         -> tensor<32x256x319xf32>
// CPU-LABEL: func.func @large
// CPU-NOT:     tensor<32x
func.func @large(%x: tensor<256x65536xf32>, %y: tensor<65536x320xf32>, %z: tensor<65536x319xf32>) -> (tensor<256x320xf32>, tensor<256x319xf32>) {
  %aligned = kernel.gemm a(%x) b(%y) : (tensor<256x65536xf32>, tensor<65536x320xf32>) -> tensor<256x320xf32>
  %odd = kernel.gemm a(%x) b(%z) : (tensor<256x65536xf32>, tensor<65536x319xf32>) -> tensor<256x319xf32>
  func.return %aligned, %odd : tensor<256x320xf32>, tensor<256x319xf32>
}
