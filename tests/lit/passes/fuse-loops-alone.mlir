// On a GPU some pointwise ops are generated though nothing joins them: large ones of 16 bits, or of rows with one number each.
// RUN: aicf-opt %s --fuse-loops=target=sm_90 | filecheck %s
// RUN: aicf-opt %s --fuse-loops | filecheck %s --check-prefix=CPU

// CPU-NOT: kernel.map

// CHECK-LABEL: func.func @of_16_bits
// CHECK:  kernel.map x(%x) {body = @gelu, shape = array<i64: 65536, 64>}
func.func @of_16_bits(%x: tensor<65536x64xbf16>) -> tensor<65536x64xbf16> {
  %0 = kernel.gelu x(%x) : tensor<65536x64xbf16>
  func.return %0 : tensor<65536x64xbf16>
}

// CHECK-LABEL: func.func @of_f32
// CHECK:  kernel.gelu
func.func @of_f32(%x: tensor<65536x64xf32>) -> tensor<65536x64xf32> {
  %0 = kernel.gelu x(%x) : tensor<65536x64xf32>
  func.return %0 : tensor<65536x64xf32>
}

// CHECK-LABEL: func.func @by_row
// CHECK:  %view = kernel.view %n : (tensor<65536x1xf32>) -> tensor<65536x64xf32, strided<[1, 0]>>
// CHECK:  kernel.map x(%x, %view) {body = @div, shape = array<i64: 65536, 64>}
func.func @by_row(%x: tensor<65536x64xf32>, %n: tensor<65536x1xf32>) -> tensor<65536x64xf32> {
  %0 = kernel.div x(%x) y(%n) : (tensor<65536x64xf32>, tensor<65536x1xf32>) -> tensor<65536x64xf32>
  func.return %0 : tensor<65536x64xf32>
}

// CHECK-LABEL: func.func @by_column
// CHECK:  kernel.div
func.func @by_column(%x: tensor<65536x64xf32>, %c: tensor<64xf32>) -> tensor<65536x64xf32> {
  %0 = kernel.div x(%x) y(%c) : (tensor<65536x64xf32>, tensor<64xf32>) -> tensor<65536x64xf32>
  func.return %0 : tensor<65536x64xf32>
}

// CHECK-LABEL: func.func @small
// CHECK:  kernel.div
func.func @small(%x: tensor<1024x64xf32>, %n: tensor<1024x1xf32>) -> tensor<1024x64xf32> {
  %0 = kernel.div x(%x) y(%n) : (tensor<1024x64xf32>, tensor<1024x1xf32>) -> tensor<1024x64xf32>
  func.return %0 : tensor<1024x64xf32>
}

// Sums over dimensions in the middle are generated, sums over the last or the first ones are not.
// CHECK-LABEL: func.func @middle
// CHECK:  %view = kernel.view %x : (tensor<4x8x6x16xbf16>) -> tensor<4x6x16x8xbf16, strided<[768, 16, 1, 96]>>
// CHECK:  kernel.rowwise x(%view) {body = @reduce_sum, reduced = 1, shape = array<i64: 4, 6, 16, 8>}
// CHECK:  kernel.reduce_sum x(%x) {dims = array<i64: 3>}
// CHECK:  kernel.reduce_sum x(%y) {dims = array<i64: 0>}
// CPU-LABEL: func.func @middle
// CPU-NOT: kernel.rowwise
func.func @middle(%x: tensor<4x8x6x16xbf16>, %y: tensor<65536x64xbf16>)
    -> (tensor<4x6x16xbf16>, tensor<4x8x6xbf16>, tensor<64xbf16>) {
  %0 = kernel.reduce_sum x(%x) {dims = array<i64: 1>} : (tensor<4x8x6x16xbf16>) -> tensor<4x6x16xbf16>
  %1 = kernel.reduce_sum x(%x) {dims = array<i64: 3>} : (tensor<4x8x6x16xbf16>) -> tensor<4x8x6xbf16>
  %2 = kernel.reduce_sum x(%y) {dims = array<i64: 0>} : (tensor<65536x64xbf16>) -> tensor<64xbf16>
  func.return %0, %1, %2 : tensor<4x6x16xbf16>, tensor<4x8x6xbf16>, tensor<64xbf16>
}
