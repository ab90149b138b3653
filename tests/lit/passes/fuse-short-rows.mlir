// On a CPU many rows of a few elements are a map over the rows: a lane has a row.
// RUN: aicf-opt %s --fuse-short-rows | filecheck %s
// RUN: aicf-opt %s --fuse-short-rows=target=sm_90 | filecheck %s --check-prefix=GPU

scalar.body @sum(%0: f32) -> f32 {
  %1 = scalar.sum %0 : f32
  scalar.yield %1 : f32
}

// CHECK-LABEL: func.func @short
// CHECK:  %view = kernel.view %x : (tensor<4096x3xf32>) -> tensor<4096xf32, strided<[3]>>
// CHECK:  %view_1 = kernel.view %x : (tensor<4096x3xf32>) -> tensor<4096xf32, strided<[3], offset: 1>>
// CHECK:  %view_2 = kernel.view %x : (tensor<4096x3xf32>) -> tensor<4096xf32, strided<[3], offset: 2>>
// CHECK:  %s = kernel.map x(%view, %view_1, %view_2) {body = @sum_1, shape = array<i64: 4096>}
// CHECK:  : (tensor<4096xf32, strided<[3]>>, tensor<4096xf32, strided<[3], offset: 1>>,
// CHECK:  func.return %s : tensor<4096xf32>
// GPU-LABEL: func.func @short
// GPU:    %s = kernel.rowwise x(%x) {body = @sum, reduced = 1, shape = array<i64: 4096, 3>}
// GPU:    : (tensor<4096x3xf32>) -> tensor<4096xf32>
// GPU:    func.return %s : tensor<4096xf32>
func.func @short(%x: tensor<4096x3xf32>) -> tensor<4096xf32> {
  %s = kernel.rowwise x(%x) {body = @sum, reduced = 1, shape = array<i64: 4096, 3>} : (tensor<4096x3xf32>) -> tensor<4096xf32>
  func.return %s : tensor<4096xf32>
}

// CHECK-LABEL: func.func @long
// CHECK:  %s = kernel.rowwise x(%x) {body = @sum, reduced = 1, shape = array<i64: 4096, 30>}
// CHECK:  : (tensor<4096x30xf32>) -> tensor<4096xf32>
// CHECK:  func.return %s : tensor<4096xf32>
// GPU-LABEL: func.func @long
// GPU:    %s = kernel.rowwise x(%x) {body = @sum, reduced = 1, shape = array<i64: 4096, 30>}
// GPU:    : (tensor<4096x30xf32>) -> tensor<4096xf32>
// GPU:    func.return %s : tensor<4096xf32>
func.func @long(%x: tensor<4096x30xf32>) -> tensor<4096xf32> {
  %s = kernel.rowwise x(%x) {body = @sum, reduced = 1, shape = array<i64: 4096, 30>} : (tensor<4096x30xf32>) -> tensor<4096xf32>
  func.return %s : tensor<4096xf32>
}
