// On a GPU products of few rows, columns or terms are loops, which fuse with their neighbours. The CPU has them as they are.
// RUN: aicf-opt %s --fuse='target="sm_90+cublaslt"' --elide-copies='target="sm_90+cublaslt"' | filecheck %s
// RUN: aicf-opt %s --fuse-narrow-products=target=sm_90 | filecheck %s --check-prefix=ALONE
// RUN: aicf-opt %s --fuse | filecheck %s --check-prefix=CPU

// A head with three outputs: dot products, with the bias added before they are rounded.
// CHECK-LABEL: func.func @head
// CHECK:         %s = kernel.rowwise x(%0, %1, %2) {body = @narrow_product, reduced = 1, shape = array<i64: 8192, 3, 128>}
// CHECK-NOT:     kernel.{{[a-z]}}
// CHECK:         func.return
// ALONE-LABEL: func.func @head
// ALONE:         %s = kernel.rowwise
// ALONE-LABEL: func.func @back
// ALONE:         %3, %4, %5 = kernel.colwise
// ALONE:         %dw = kernel.join
// ALONE:         %dh = kernel.map
// CPU-LABEL: func.func @head
// CPU:         kernel.gemm_epilogue
func.func @head(%x: tensor<8192x128xbf16>, %w: tensor<3x128xbf16>, %b: tensor<3xbf16>) -> tensor<8192x3xbf16> {
  %z = kernel.gemm a(%x) b(%w) {trans_b = true} : (tensor<8192x128xbf16>, tensor<3x128xbf16>) -> tensor<8192x3xbf16>
  %s = kernel.bias_add x(%z) bias(%b) : (tensor<8192x3xbf16>, tensor<3xbf16>) -> tensor<8192x3xbf16>
  func.return %s : tensor<8192x3xbf16>
}

// Both its gradients, that of relu behind it and the sum for the bias in front: one pass, whose parts lie in the gradient of the weight.
// CHECK-LABEL: func.func @back
// CHECK:         %0, %1, %2, %dz, %db = kernel.colwise x(
// CHECK:         %dw = kernel.join %0, %1, %2
// CHECK-NOT:     kernel.{{[a-z]}}
// CHECK:         func.return
func.func @back(%dy: tensor<8192x3xbf16>, %h: tensor<8192x128xbf16>, %w: tensor<3x128xbf16>) -> (tensor<3x128xbf16>, tensor<8192x128xbf16>, tensor<128xbf16>) {
  %dw = kernel.gemm a(%dy) b(%h) {trans_a = true} : (tensor<8192x3xbf16>, tensor<8192x128xbf16>) -> tensor<3x128xbf16>
  %dh = kernel.gemm a(%dy) b(%w) : (tensor<8192x3xbf16>, tensor<3x128xbf16>) -> tensor<8192x128xbf16>
  %dz = kernel.relu_bwd dy(%dh) saved(%h) : (tensor<8192x128xbf16>, tensor<8192x128xbf16>) -> tensor<8192x128xbf16>
  %db = kernel.reduce_sum x(%dz) {dims = array<i64: 0>} : (tensor<8192x128xbf16>) -> tensor<128xbf16>
  func.return %dw, %dz, %db : tensor<3x128xbf16>, tensor<8192x128xbf16>, tensor<128xbf16>
}
