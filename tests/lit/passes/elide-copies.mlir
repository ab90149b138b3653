// Launches read views, and write parts and transposes, where a kernel takes the layout; other copies stay.
// RUN: aicf-opt %s --elide-copies --split-input-file | filecheck %s
// RUN: aicf-opt %s -p "elide-copies{target=sm_90}" --split-input-file | filecheck %s

// A part of x, transposed, is read where it lies.
// CHECK-LABEL: func.func @read
// CHECK-NEXT:    %view = kernel.view %x : (tensor<4x8xf32>) -> tensor<3x4xf32, strided<[1, 8], offset: 2>>
// CHECK-NEXT:    %y = kernel.gemm a(%view) b(%w)
// CHECK-NEXT:    func.return %y
func.func @read(%x: tensor<4x8xf32>, %w: tensor<4x2xf32>) -> tensor<3x2xf32> {
  %0 = kernel.view %x : (tensor<4x8xf32>) -> tensor<4x3xf32, strided<[8, 1], offset: 2>>
  %part = kernel.copy x(%0) : (tensor<4x3xf32, strided<[8, 1], offset: 2>>) -> tensor<4x3xf32>
  %1 = kernel.view %part : (tensor<4x3xf32>) -> tensor<3x4xf32, strided<[1, 3]>>
  %turned = kernel.copy x(%1) : (tensor<3x4xf32, strided<[1, 3]>>) -> tensor<3x4xf32>
  %y = kernel.gemm a(%turned) b(%w) : (tensor<3x4xf32>, tensor<4x2xf32>) -> tensor<3x2xf32>
  func.return %y : tensor<3x2xf32>
}

// -----

// Both products go to their places; what reads one of them too reads it there.
// CHECK-LABEL: func.func @write
// CHECK:         %left = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32, strided<[5, 1]>>
// CHECK-NEXT:    %right = kernel.gemm a(%x) b(%v) : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32, strided<[5, 1], offset: 2>>
// CHECK-NEXT:    %both = kernel.join %left, %right
// CHECK:         %z = kernel.gemm a(%left) b(%left) {trans_b = true}
// CHECK:         func.return %both, %z
func.func @write(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>, %v: tensor<8x3xf32>) -> (tensor<4x5xf32>, tensor<4x4xf32>) {
  %left = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %right = kernel.gemm a(%x) b(%v) : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %0 = kernel.copy x(%left) : (tensor<4x2xf32>) -> tensor<4x2xf32, strided<[5, 1]>>
  %1 = kernel.copy x(%right) : (tensor<4x3xf32>) -> tensor<4x3xf32, strided<[5, 1], offset: 2>>
  %both = kernel.join %0, %1 : (tensor<4x2xf32, strided<[5, 1]>>, tensor<4x3xf32, strided<[5, 1], offset: 2>>) -> tensor<4x5xf32>
  %z = kernel.gemm a(%left) b(%left) {trans_b = true} : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x4xf32>
  func.return %both, %z : tensor<4x5xf32>, tensor<4x4xf32>
}

// -----

// [batch, head, time, size] is written as [batch, time, head, size], whose rows are those of the layer behind.
// CHECK-LABEL: func.func @heads
// CHECK-NEXT:    %y = kernel.gemm a(%s) b(%v)
// CHECK-NEXT:      -> tensor<2x4x3x2xf32, strided<[24, 2, 8, 1]>>
// CHECK-NEXT:    %turned = kernel.join %y : (tensor<2x4x3x2xf32, strided<[24, 2, 8, 1]>>) -> tensor<2x3x4x2xf32>
// CHECK-NEXT:    %rows = kernel.reshape %turned : (tensor<2x3x4x2xf32>) -> tensor<6x8xf32>
// CHECK-NEXT:    %z = kernel.gemm a(%rows) b(%w)
func.func @heads(%s: tensor<2x4x3x3xf32>, %v: tensor<2x4x3x2xf32>, %w: tensor<8x8xf32>) -> tensor<6x8xf32> {
  %y = kernel.gemm a(%s) b(%v) : (tensor<2x4x3x3xf32>, tensor<2x4x3x2xf32>) -> tensor<2x4x3x2xf32>
  %0 = kernel.view %y : (tensor<2x4x3x2xf32>) -> tensor<2x3x4x2xf32, strided<[24, 2, 6, 1]>>
  %turned = kernel.copy x(%0) : (tensor<2x3x4x2xf32, strided<[24, 2, 6, 1]>>) -> tensor<2x3x4x2xf32>
  %rows = kernel.reshape %turned : (tensor<2x3x4x2xf32>) -> tensor<6x8xf32>
  %z = kernel.gemm a(%rows) b(%w) : (tensor<6x8xf32>, tensor<8x8xf32>) -> tensor<6x8xf32>
  func.return %z : tensor<6x8xf32>
}

// -----

// An op that takes dense tensors only reads one copy, not two; an argument is copied to its part of a join; a cast
// is no move, but reads the view.
// CHECK-LABEL: func.func @stays
// CHECK:         %[[VIEW:.*]] = kernel.view %x : (tensor<4x8xf32>) -> tensor<3x4xf32, strided<[1, 8], offset: 2>>
// CHECK-NEXT:    %turned = kernel.copy x(%[[VIEW]]) : (tensor<3x4xf32, strided<[1, 8], offset: 2>>) -> tensor<3x4xf32>
// CHECK-NEXT:    %y = kernel.mse_loss y(%turned) t(%turned)
// CHECK-NEXT:    %cast = kernel.copy x(%[[VIEW]]) : (tensor<3x4xf32, strided<[1, 8], offset: 2>>) -> tensor<3x4xf64>
// CHECK-NEXT:    %[[LEFT:.*]] = kernel.copy x(%w)
// CHECK-NEXT:    %[[RIGHT:.*]] = kernel.copy x(%w)
// CHECK-NEXT:    %both = kernel.join %[[LEFT]], %[[RIGHT]]
// CHECK:         func.return %y, %cast, %both
func.func @stays(%x: tensor<4x8xf32>, %w: tensor<4x2xf32>) -> (tensor<f32>, tensor<3x4xf64>, tensor<4x4xf32>) {
  %0 = kernel.view %x : (tensor<4x8xf32>) -> tensor<4x3xf32, strided<[8, 1], offset: 2>>
  %part = kernel.copy x(%0) : (tensor<4x3xf32, strided<[8, 1], offset: 2>>) -> tensor<4x3xf32>
  %1 = kernel.view %part : (tensor<4x3xf32>) -> tensor<3x4xf32, strided<[1, 3]>>
  %turned = kernel.copy x(%1) : (tensor<3x4xf32, strided<[1, 3]>>) -> tensor<3x4xf32>
  %y = kernel.mse_loss y(%turned) t(%turned) : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<f32>
  %cast = kernel.copy x(%turned) : (tensor<3x4xf32>) -> tensor<3x4xf64>
  %2 = kernel.copy x(%w) : (tensor<4x2xf32>) -> tensor<4x2xf32, strided<[4, 1]>>
  %3 = kernel.copy x(%w) : (tensor<4x2xf32>) -> tensor<4x2xf32, strided<[4, 1], offset: 2>>
  %both = kernel.join %2, %3 : (tensor<4x2xf32, strided<[4, 1]>>, tensor<4x2xf32, strided<[4, 1], offset: 2>>) -> tensor<4x4xf32>
  func.return %y, %cast, %both : tensor<f32>, tensor<3x4xf64>, tensor<4x4xf32>
}

// -----

// One launch may write several parts of a block whose bytes do not interleave.
// CHECK-LABEL: func.func @parts_of_one_launch
// CHECK-NEXT:    %a, %b = kernel.multi_tensor_rowwise x(%p, %q)
// CHECK-NEXT:      -> (tensor<f32, strided<[]>>, tensor<f32, strided<[], offset: 1>>)
// CHECK-NEXT:    %both = kernel.join %a, %b
// CHECK-NEXT:    func.return %both
scalar.body @squares(%x: f32) -> f32 {
  %y = arith.mulf %x, %x : f32
  %s = scalar.sum %y : f32
  scalar.yield %s : f32
}
func.func @parts_of_one_launch(%p: tensor<4x3xf32>, %q: tensor<5xf32>) -> tensor<2xf32> {
  %a, %b = kernel.multi_tensor_rowwise x(%p, %q) {body = @squares, segments = 2} : (tensor<4x3xf32>, tensor<5xf32>) -> (tensor<f32>, tensor<f32>)
  %0 = kernel.reshape %a : (tensor<f32>) -> tensor<1xf32>
  %1 = kernel.reshape %b : (tensor<f32>) -> tensor<1xf32>
  %2 = kernel.copy x(%0) : (tensor<1xf32>) -> tensor<1xf32, strided<[1]>>
  %3 = kernel.copy x(%1) : (tensor<1xf32>) -> tensor<1xf32, strided<[1], offset: 1>>
  %both = kernel.join %2, %3 : (tensor<1xf32, strided<[1]>>, tensor<1xf32, strided<[1], offset: 1>>) -> tensor<2xf32>
  func.return %both : tensor<2xf32>
}

// -----

// The parts of a join that is a part of another join are written where the outer one has them.
// CHECK-LABEL: func.func @nested
// CHECK:         %left = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32, strided<[7, 1]>>
// CHECK-NEXT:    %right = kernel.gemm a(%x) b(%v) : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32, strided<[7, 1], offset: 2>>
// CHECK-NEXT:    %other = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32, strided<[7, 1], offset: 5>>
// CHECK-NEXT:    %all = kernel.join %left, %right, %other
// CHECK:         func.return %all
func.func @nested(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>, %v: tensor<8x3xf32>) -> tensor<4x7xf32> {
  %left = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %right = kernel.gemm a(%x) b(%v) : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %0 = kernel.copy x(%left) : (tensor<4x2xf32>) -> tensor<4x2xf32, strided<[5, 1]>>
  %1 = kernel.copy x(%right) : (tensor<4x3xf32>) -> tensor<4x3xf32, strided<[5, 1], offset: 2>>
  %both = kernel.join %0, %1 : (tensor<4x2xf32, strided<[5, 1]>>, tensor<4x3xf32, strided<[5, 1], offset: 2>>) -> tensor<4x5xf32>
  %2 = kernel.copy x(%both) : (tensor<4x5xf32>) -> tensor<4x5xf32, strided<[7, 1]>>
  %other = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %3 = kernel.copy x(%other) : (tensor<4x2xf32>) -> tensor<4x2xf32, strided<[7, 1], offset: 5>>
  %all = kernel.join %2, %3 : (tensor<4x5xf32, strided<[7, 1]>>, tensor<4x2xf32, strided<[7, 1], offset: 5>>) -> tensor<4x7xf32>
  func.return %all : tensor<4x7xf32>
}
