// RUN: aicf-opt %s --split-dimensions --split-input-file | filecheck %s
// RUN: aicf-opt %s --split-dimensions --elide-copies=target=sm_90 --split-input-file | filecheck %s --check-prefix=GPU

// Windows of 2 x 3 of an image: a launch that makes it runs over their parts, and then writes them in place.
// CHECK-LABEL: func.func @partition
// CHECK:         %[[X:.*]] = kernel.reshape %x : (tensor<2x4x6x8xf32>) -> tensor<2x2x2x2x3x8xf32>
// CHECK:         %[[B:.*]] = kernel.view %b : (tensor<8xf32>) -> tensor<2x2x2x2x3x8xf32, strided<[0, 0, 0, 0, 0, 1]>>
// CHECK:         %[[Y:.*]], %[[SUM:.*]] = kernel.rowwise x(%[[X]], %[[B]]) {body = @scaled, reduced = 1, shape = array<i64: 2, 2, 2, 2, 3, 8>}
// CHECK:         kernel.reshape %[[SUM]] : (tensor<2x2x2x2x3xf32>) -> tensor<2x4x6xf32>
// CHECK:         kernel.view %[[Y]]
// GPU-LABEL: func.func @partition
// GPU:         %[[Y:.*]], %{{.*}} = kernel.rowwise {{.*}} shape = array<i64: 2, 2, 2, 2, 3, 8>}
// GPU:         kernel.join %[[Y]] : (tensor<2x2x2x2x3x8xf32, strided<[192, 96, 24, 48, 8, 1]>>)
// GPU-NOT:     kernel.copy
scalar.body @scaled(%x: f32, %b: f32) -> (f32, f32) {
  %y = arith.mulf %x, %b : f32
  %s = scalar.sum %y : f32
  scalar.yield %y, %s : f32, f32
}
func.func @partition(%x: tensor<2x4x6x8xf32>, %b: tensor<8xf32>) -> (tensor<8x6x8xf32>, tensor<2x4x6xf32>) {
  %bb = kernel.view %b : (tensor<8xf32>) -> tensor<2x4x6x8xf32, strided<[0, 0, 0, 1]>>
  %y, %s = kernel.rowwise x(%x, %bb) {body = @scaled, reduced = 1, shape = array<i64: 2, 4, 6, 8>} : (tensor<2x4x6x8xf32>, tensor<2x4x6x8xf32, strided<[0, 0, 0, 1]>>) -> (tensor<2x4x6x8xf32>, tensor<2x4x6xf32>)
  %parts = kernel.reshape %y : (tensor<2x4x6x8xf32>) -> tensor<2x2x2x2x3x8xf32>
  %turned = kernel.view %parts : (tensor<2x2x2x2x3x8xf32>) -> tensor<2x2x2x2x3x8xf32, strided<[192, 96, 24, 48, 8, 1]>>
  %windows = kernel.copy x(%turned) : (tensor<2x2x2x2x3x8xf32, strided<[192, 96, 24, 48, 8, 1]>>) -> tensor<2x2x2x2x3x8xf32>
  %rows = kernel.reshape %windows : (tensor<2x2x2x2x3x8xf32>) -> tensor<8x6x8xf32>
  func.return %rows, %s : tensor<8x6x8xf32>, tensor<2x4x6xf32>
}

// -----

// One that reads an image made of windows reads them where they are. A body that counts in a dimension stays as it is.
// CHECK-LABEL: func.func @joined
// CHECK:         kernel.map x(%{{.*}}) {body = @twice, shape = array<i64: 2, 2, 2, 2, 3, 8>}
// CHECK:         kernel.map x(%{{.*}}) {body = @counted, shape = array<i64: 2, 4, 6, 8>}
// GPU-LABEL: func.func @joined
// GPU:         kernel.copy
// GPU:         %[[W:.*]] = kernel.view %w : (tensor<2x2x2x2x3x8xf32>) -> tensor<2x2x2x2x3x8xf32, strided<[192, 96, 24, 48, 8, 1]>>
// GPU:         kernel.map x(%[[W]]) {body = @twice
scalar.body @twice(%x: f32) -> f32 {
  %y = arith.addf %x, %x : f32
  scalar.yield %y : f32
}
scalar.body @counted(%x: f32) -> f32 {
  %i = scalar.index 1
  %f = arith.sitofp %i : i64 to f32
  %y = arith.addf %x, %f : f32
  scalar.yield %y : f32
}
func.func @joined(%w: tensor<2x2x2x2x3x8xf32>) -> (tensor<2x4x6x8xf32>, tensor<2x4x6x8xf32>) {
  %turned = kernel.view %w : (tensor<2x2x2x2x3x8xf32>) -> tensor<2x2x2x2x3x8xf32, strided<[192, 96, 24, 48, 8, 1]>>
  %copy = kernel.copy x(%turned) : (tensor<2x2x2x2x3x8xf32, strided<[192, 96, 24, 48, 8, 1]>>) -> tensor<2x2x2x2x3x8xf32>
  %x = kernel.reshape %copy : (tensor<2x2x2x2x3x8xf32>) -> tensor<2x4x6x8xf32>
  %y = kernel.map x(%x) {body = @twice, shape = array<i64: 2, 4, 6, 8>} : (tensor<2x4x6x8xf32>) -> tensor<2x4x6x8xf32>
  %z = kernel.map x(%x) {body = @counted, shape = array<i64: 2, 4, 6, 8>} : (tensor<2x4x6x8xf32>) -> tensor<2x4x6x8xf32>
  func.return %y, %z : tensor<2x4x6x8xf32>, tensor<2x4x6x8xf32>
}

// -----

// A permutation within a row divides nothing.
// CHECK-LABEL: func.func @within
// CHECK:         kernel.rowwise x(%x) {body = @sum, reduced = 1, shape = array<i64: 4, 12>}
// GPU-LABEL: func.func @within
scalar.body @sum(%x: f32) -> (f32, f32) {
  %s = scalar.sum %x : f32
  %y = arith.subf %x, %s : f32
  scalar.yield %y, %s : f32, f32
}
func.func @within(%x: tensor<4x12xf32>) -> tensor<4x4x3xf32> {
  %y, %s = kernel.rowwise x(%x) {body = @sum, reduced = 1, shape = array<i64: 4, 12>} : (tensor<4x12xf32>) -> (tensor<4x12xf32>, tensor<4xf32>)
  %parts = kernel.reshape %y : (tensor<4x12xf32>) -> tensor<4x3x4xf32>
  %turned = kernel.view %parts : (tensor<4x3x4xf32>) -> tensor<4x4x3xf32, strided<[12, 1, 4]>>
  %copy = kernel.copy x(%turned) : (tensor<4x4x3xf32, strided<[12, 1, 4]>>) -> tensor<4x4x3xf32>
  func.return %copy : tensor<4x4x3xf32>
}

// -----

// No kernel takes nine dimensions.
// CHECK-LABEL: func.func @many
// CHECK:         kernel.rowwise x(%x) {body = @sum, reduced = 1, shape = array<i64: 2, 2, 2, 2, 2, 8, 8>}
// GPU-LABEL: func.func @many
scalar.body @sum(%x: f32) -> (f32, f32) {
  %s = scalar.sum %x : f32
  %y = arith.subf %x, %s : f32
  scalar.yield %y, %s : f32, f32
}
func.func @many(%x: tensor<2x2x2x2x2x8x8xf32>) -> tensor<64x2x2x8xf32> {
  %y, %s = kernel.rowwise x(%x) {body = @sum, reduced = 1, shape = array<i64: 2, 2, 2, 2, 2, 8, 8>} : (tensor<2x2x2x2x2x8x8xf32>) -> (tensor<2x2x2x2x2x8x8xf32>, tensor<2x2x2x2x2x8xf32>)
  %parts = kernel.reshape %y : (tensor<2x2x2x2x2x8x8xf32>) -> tensor<64x2x2x8xf32>
  %turned = kernel.view %parts : (tensor<64x2x2x8xf32>) -> tensor<64x2x2x8xf32, strided<[32, 8, 16, 1]>>
  %copy = kernel.copy x(%turned) : (tensor<64x2x2x8xf32, strided<[32, 8, 16, 1]>>) -> tensor<64x2x2x8xf32>
  func.return %copy : tensor<64x2x2x8xf32>
}
