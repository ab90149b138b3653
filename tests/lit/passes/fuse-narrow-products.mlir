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

// The gradient of a layer of 13 features: sums that write the columns of the weight's gradient, with that of the bias.
// CHECK-LABEL: func.func @features
// CHECK:         %db = kernel.colwise
// CHECK:         tensor<512xf32, strided<[13], offset: 12>>, tensor<512xf32>)
// CHECK:         %dw = kernel.join
// CHECK-NOT:     kernel.{{[a-z]}}
// CHECK:         func.return
func.func @features(%dy: tensor<2048x512xf32>, %x: tensor<2048x13xf32>) -> (tensor<512x13xf32>, tensor<512xf32>) {
  %dw = kernel.gemm a(%dy) b(%x) {trans_a = true} : (tensor<2048x512xf32>, tensor<2048x13xf32>) -> tensor<512x13xf32>
  %db = kernel.reduce_sum x(%dy) {dims = array<i64: 0>} : (tensor<2048x512xf32>) -> tensor<512xf32>
  func.return %dw, %db : tensor<512x13xf32>, tensor<512xf32>
}

// A small head of ten classes is dot products. A larger one is padded, one of sixteen classes stored as it is. So is one of 84 bytes.
// ALONE-LABEL: func.func @small_classes
// ALONE:         kernel.rowwise {{.*}} shape = array<i64: 256, 10, 512>
// ALONE-LABEL: func.func @large_classes
// ALONE-NEXT:    kernel.gemm
// ALONE-LABEL: func.func @even_classes
// ALONE-NEXT:    kernel.gemm
// ALONE-LABEL: func.func @classes_of_f32
// ALONE-NEXT:    kernel.gemm
func.func @small_classes(%x: tensor<256x512xbf16>, %w: tensor<10x512xbf16>) -> tensor<256x10xbf16> {
  %z = kernel.gemm a(%x) b(%w) {trans_b = true} : (tensor<256x512xbf16>, tensor<10x512xbf16>) -> tensor<256x10xbf16>
  func.return %z : tensor<256x10xbf16>
}
func.func @large_classes(%x: tensor<512x512xbf16>, %w: tensor<10x512xbf16>) -> tensor<512x10xbf16> {
  %z = kernel.gemm a(%x) b(%w) {trans_b = true} : (tensor<512x512xbf16>, tensor<10x512xbf16>) -> tensor<512x10xbf16>
  func.return %z : tensor<512x10xbf16>
}
func.func @even_classes(%x: tensor<256x512xbf16>, %w: tensor<16x512xbf16>) -> tensor<256x16xbf16> {
  %z = kernel.gemm a(%x) b(%w) {trans_b = true} : (tensor<256x512xbf16>, tensor<16x512xbf16>) -> tensor<256x16xbf16>
  func.return %z : tensor<256x16xbf16>
}
func.func @classes_of_f32(%x: tensor<256x512xf32>, %w: tensor<21x512xf32>) -> tensor<256x21xf32> {
  %z = kernel.gemm a(%x) b(%w) {trans_b = true} : (tensor<256x512xf32>, tensor<21x512xf32>) -> tensor<256x21xf32>
  func.return %z : tensor<256x21xf32>
}

// Of a head with ten classes it is rows.
// CHECK-LABEL: func.func @classes
// CHECK:         kernel.colwise
// CHECK:         %dw = kernel.join
// CHECK:         func.return
func.func @classes(%dy: tensor<2048x10xf32>, %h: tensor<2048x512xf32>) -> tensor<10x512xf32> {
  %dw = kernel.gemm a(%dy) b(%h) {trans_a = true} : (tensor<2048x10xf32>, tensor<2048x512xf32>) -> tensor<10x512xf32>
  func.return %dw : tensor<10x512xf32>
}

// Not of more than 16, of fewer terms, on tensor cores, nor of two narrow sides.
// CHECK-LABEL: func.func @tiles
// CHECK-NOT:     kernel.colwise
// CHECK:         func.return
func.func @tiles(%dy: tensor<2048x512xf32>, %x: tensor<2048x17xf32>, %ds: tensor<2047x512xf32>, %s: tensor<2047x13xf32>, %dh: tensor<2048x512xbf16>, %h: tensor<2048x13xbf16>, %dn: tensor<2048x24xf32>, %n: tensor<2048x13xf32>) -> (tensor<512x17xf32>, tensor<512x13xf32>, tensor<512x13xbf16>, tensor<24x13xf32>) {
  %a = kernel.gemm a(%dy) b(%x) {trans_a = true} : (tensor<2048x512xf32>, tensor<2048x17xf32>) -> tensor<512x17xf32>
  %b = kernel.gemm a(%ds) b(%s) {trans_a = true} : (tensor<2047x512xf32>, tensor<2047x13xf32>) -> tensor<512x13xf32>
  %c = kernel.gemm a(%dh) b(%h) {trans_a = true} : (tensor<2048x512xbf16>, tensor<2048x13xbf16>) -> tensor<512x13xbf16>
  %d = kernel.gemm a(%dn) b(%n) {trans_a = true} : (tensor<2048x24xf32>, tensor<2048x13xf32>) -> tensor<24x13xf32>
  func.return %a, %b, %c, %d : tensor<512x17xf32>, tensor<512x13xf32>, tensor<512x13xbf16>, tensor<24x13xf32>
}
