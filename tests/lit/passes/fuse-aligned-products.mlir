// On a GPU large products of odd rows in 16 bits are padded, and what makes their operands writes to the padded block.
// RUN: aicf-opt %s --fuse-aligned-products='target="sm_90+cublaslt"' --elide-copies='target="sm_90+cublaslt"' | filecheck %s
// RUN: aicf-opt %s --fuse-aligned-products | filecheck %s --check-prefix=CPU

// The cast writes to the block that two products read; the gradient of the weight is a part of its block.
// CHECK-LABEL: func.func @odd
// CHECK:         kernel.copy x(%x) : (tensor<8192x63xf32>) -> tensor<8192x63xbf16, strided<[64, 1]>>
// CHECK:         %[[X:.*]] = kernel.join
// CHECK:         %y = kernel.gemm a(%[[X]]) b(%{{.*}}) {trans_b = true} : (tensor<8192x64xbf16>, tensor<256x64xbf16>)
// CHECK:         %[[DW:.*]] = kernel.gemm a(%g) b(%[[X]]) {trans_a = true}
// CHECK-NEXT:    %[[PART:.*]] = kernel.view %[[DW]] : (tensor<256x64xbf16>) -> tensor<256x63xbf16, strided<[64, 1]>>
// CHECK-NEXT:    kernel.copy x(%[[PART]]) : (tensor<256x63xbf16, strided<[64, 1]>>) -> tensor<256x63xf32>
// CPU-LABEL: func.func @odd
// CPU-NOT:     kernel.join
func.func @odd(%x: tensor<8192x63xf32>, %w: tensor<256x63xf32>, %g: tensor<8192x256xbf16>) -> (tensor<8192x256xbf16>, tensor<256x63xf32>) {
  %x16 = kernel.copy x(%x) : (tensor<8192x63xf32>) -> tensor<8192x63xbf16>
  %w16 = kernel.copy x(%w) : (tensor<256x63xf32>) -> tensor<256x63xbf16>
  %y = kernel.gemm a(%x16) b(%w16) {trans_b = true} : (tensor<8192x63xbf16>, tensor<256x63xbf16>) -> tensor<8192x256xbf16>
  %dw = kernel.gemm a(%g) b(%x16) {trans_a = true} : (tensor<8192x256xbf16>, tensor<8192x63xbf16>) -> tensor<256x63xbf16>
  %dw32 = kernel.copy x(%dw) : (tensor<256x63xbf16>) -> tensor<256x63xf32>
  func.return %y, %dw32 : tensor<8192x256xbf16>, tensor<256x63xf32>
}

// Sums of the columns of what is padded read the padded block, so that it alone is written.
// CHECK-LABEL: func.func @padded_gradient
// CHECK:         kernel.join
// CHECK:         kernel.reduce_sum x(%{{.*}}) {dims = array<i64: 0>} : (tensor<4096x504xbf16>) -> tensor<504xbf16>
// CPU-LABEL: func.func @padded_gradient
// CPU-NOT:     tensor<4096x504xbf16>
func.func @padded_gradient(%x: tensor<4096x499xbf16>, %w: tensor<499x512xbf16>) -> (tensor<4096x512xbf16>, tensor<499xbf16>) {
  %d = kernel.relu x(%x) : tensor<4096x499xbf16>
  %dx = kernel.gemm a(%d) b(%w) : (tensor<4096x499xbf16>, tensor<499x512xbf16>) -> tensor<4096x512xbf16>
  %db = kernel.reduce_sum x(%d) {dims = array<i64: 0>} : (tensor<4096x499xbf16>) -> tensor<499xbf16>
  func.return %dx, %db : tensor<4096x512xbf16>, tensor<499xbf16>
}

// Parts that are cast or viewed as they are written to a join: the whole is padded, and they are written to the padded block.
// CHECK-LABEL: func.func @cast_parts
// CHECK:         %[[X:.*]] = kernel.copy x(%x) : (tensor<4096x46xf32>) -> tensor<4096x46xbf16, strided<[72, 1]>>
// CHECK:         %[[Y:.*]] = kernel.copy x(%y) : (tensor<4096x21xf32>) -> tensor<4096x21xbf16, strided<[72, 1], offset: 46>>
// CHECK:         %[[A:.*]] = kernel.join %[[X]], %[[Y]], %{{[0-9]+}}
// CHECK:         kernel.gemm a(%[[A]]) b(%{{.*}}) : (tensor<4096x72xbf16>, tensor<72x8xbf16>) -> tensor<4096x8xbf16>
func.func @cast_parts(%x: tensor<4096x46xf32>, %y: tensor<4096x21xf32>, %w: tensor<67x8xbf16>) -> tensor<4096x8xbf16> {
  %0 = kernel.copy x(%x) : (tensor<4096x46xf32>) -> tensor<4096x46xbf16, strided<[67, 1]>>
  %1 = kernel.copy x(%y) : (tensor<4096x21xf32>) -> tensor<4096x21xbf16, strided<[67, 1], offset: 46>>
  %2 = kernel.join %0, %1 : (tensor<4096x46xbf16, strided<[67, 1]>>, tensor<4096x21xbf16, strided<[67, 1], offset: 46>>) -> tensor<4096x67xbf16>
  %3 = kernel.gemm a(%2) b(%w) : (tensor<4096x67xbf16>, tensor<67x8xbf16>) -> tensor<4096x8xbf16>
  func.return %3 : tensor<4096x8xbf16>
}

// A part without elements is none.
// CHECK-LABEL: func.func @empty_part
// CHECK:         %[[X:.*]] = kernel.copy x(%x) : (tensor<4096x67xbf16>) -> tensor<4096x67xbf16, strided<[72, 1]>>
// CHECK:         kernel.join %[[X]], %{{[0-9]+}}
// CHECK:         kernel.gemm a(%{{.*}}) b(%{{.*}}) : (tensor<4096x72xbf16>, tensor<72x8xbf16>) -> tensor<4096x8xbf16>
func.func @empty_part(%x: tensor<4096x67xbf16>, %y: tensor<4096x0xbf16>, %w: tensor<67x8xbf16>) -> tensor<4096x8xbf16> {
  %0 = kernel.copy x(%x) : (tensor<4096x67xbf16>) -> tensor<4096x67xbf16, strided<[67, 1]>>
  %1 = kernel.copy x(%y) : (tensor<4096x0xbf16>) -> tensor<4096x0xbf16, strided<[67, 1]>>
  %2 = kernel.join %0, %1 : (tensor<4096x67xbf16, strided<[67, 1]>>, tensor<4096x0xbf16, strided<[67, 1]>>) -> tensor<4096x67xbf16>
  %3 = kernel.gemm a(%2) b(%w) : (tensor<4096x67xbf16>, tensor<67x8xbf16>) -> tensor<4096x8xbf16>
  func.return %3 : tensor<4096x8xbf16>
}

// Of a batch the library takes small matrices as they are: copies would take longer. Where there is no library they are padded.
// RUN: aicf-opt %s --fuse-aligned-products='target=sm_90' | filecheck %s --check-prefix=OWN
// CHECK-LABEL: func.func @batches
// CHECK:         %small = kernel.gemm a(%x) b(%y) : (tensor<2048x27x64xbf16>, tensor<2048x64x27xbf16>)
// CHECK:         %{{.*}} = kernel.gemm a(%{{.*}}) b(%{{.*}}) : (tensor<8x1000x1000xbf16>, tensor<8x1000x64xbf16>)
// OWN-LABEL: func.func @batches
// OWN:         kernel.gemm a(%x) b(%{{.*}}) : (tensor<2048x27x64xbf16>, tensor<2048x64x32xbf16>)
// OWN:         kernel.gemm a(%{{.*}}) b(%{{.*}}) : (tensor<8x1000x1000xbf16>, tensor<8x1000x64xbf16>)
// CPU-LABEL: func.func @batches
// CPU-NOT:     kernel.join
func.func @batches(%x: tensor<2048x27x64xbf16>, %y: tensor<2048x64x27xbf16>, %z: tensor<8x1000x1000xbf16>, %w: tensor<8x1000x63xbf16>) -> (tensor<2048x27x27xbf16>, tensor<8x1000x63xbf16>) {
  %small = kernel.gemm a(%x) b(%y) : (tensor<2048x27x64xbf16>, tensor<2048x64x27xbf16>) -> tensor<2048x27x27xbf16>
  %large = kernel.gemm a(%z) b(%w) : (tensor<8x1000x1000xbf16>, tensor<8x1000x63xbf16>) -> tensor<8x1000x63xbf16>
  func.return %small, %large : tensor<2048x27x27xbf16>, tensor<8x1000x63xbf16>
}
