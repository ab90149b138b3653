// A rowwise launch moves most of its bytes along its rows: a copy turns what lies across them, if it is large.
// RUN: aicf-opt %s -p "straighten-rows{target=sm_90}" --split-input-file | filecheck %s
// RUN: aicf-opt %s --straighten-rows --split-input-file | filecheck %s --check-prefix=CPU

// One operand lies across, and so does the result: each has a copy, and a reader of the result reads it where it was.
// CHECK-LABEL: func.func @turn
// CHECK:         %[[DENSE:.*]] = kernel.copy x(%across) : (tensor<64x128x128xf32, strided<[16384, 1, 128]>>) -> tensor<64x128x128xf32>
// CHECK-NEXT:    %[[Y:.*]] = kernel.rowwise x(%x, %w, %[[DENSE]])
// CHECK-NEXT:    : tensor<64x128x128xf32>
// CHECK-NEXT:    %y = kernel.copy x(%[[Y]]) : (tensor<64x128x128xf32>) -> tensor<64x128x128xf32, strided<[16384, 1, 128]>>
// CHECK-NEXT:    kernel.join %y
// CPU-LABEL: func.func @turn
// CPU-NOT:     kernel.copy
scalar.body @center(%a: f32, %b: f32, %c: f32) -> f32 {
  %0 = arith.addf %a, %b : f32
  %1 = arith.addf %0, %c : f32
  %sum = scalar.sum %1 : f32
  %2 = arith.subf %1, %sum : f32
  scalar.yield %2 : f32
}
func.func @turn(%x: tensor<64x128x128xf32>, %w: tensor<64x128x128xf32>, %z: tensor<64x128x128xf32>) -> tensor<64x128x128xf32> {
  %across = kernel.view %z : (tensor<64x128x128xf32>) -> tensor<64x128x128xf32, strided<[16384, 1, 128]>>
  %y = kernel.rowwise x(%x, %w, %across) {body = @center, reduced = 1, shape = array<i64: 64, 128, 128>} : (tensor<64x128x128xf32>, tensor<64x128x128xf32>, tensor<64x128x128xf32, strided<[16384, 1, 128]>>) -> tensor<64x128x128xf32, strided<[16384, 1, 128]>>
  %block = kernel.join %y : (tensor<64x128x128xf32, strided<[16384, 1, 128]>>) -> tensor<64x128x128xf32>
  func.return %block : tensor<64x128x128xf32>
}
func.func @small(%x: tensor<8x16x16xf32>, %w: tensor<8x16x16xf32>, %z: tensor<8x16x16xf32>) -> tensor<8x16x16xf32> {
  // CHECK-LABEL: func.func @small
  // CHECK-NOT: kernel.copy
  %across = kernel.view %z : (tensor<8x16x16xf32>) -> tensor<8x16x16xf32, strided<[256, 1, 16]>>
  %y = kernel.rowwise x(%x, %w, %across) {body = @center, reduced = 1, shape = array<i64: 8, 16, 16>} : (tensor<8x16x16xf32>, tensor<8x16x16xf32>, tensor<8x16x16xf32, strided<[256, 1, 16]>>) -> tensor<8x16x16xf32>
  func.return %y : tensor<8x16x16xf32>
}
