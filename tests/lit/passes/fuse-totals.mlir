// On a GPU a large sum of all elements is one launch with sums of columns of the same, and a sum of these.
// RUN: aicf-opt %s --fuse-totals=target=sm_90 | filecheck %s
// RUN: aicf-opt %s --fuse-totals | filecheck %s --check-prefix=CPU

scalar.body @square_sum(%0: f32) -> f32 {
  %1 = arith.mulf %0, %0 : f32
  %2 = scalar.sum %1 : f32
  scalar.yield %2 : f32
}
scalar.body @sum(%0: f32) -> f32 {
  %1 = scalar.sum %0 : f32
  scalar.yield %1 : f32
}

// CHECK-LABEL: func.func @both
// CHECK:  %0, %columns = kernel.colwise x(%x) {body = @square_sum_sum, reduced = 1, shape = array<i64: 65536, 16>}
// CHECK:  : (tensor<65536x16xf32>) -> (tensor<16xf32>, tensor<16xf32>)
// CHECK:  %total = kernel.rowwise x(%0) {body = @sum, reduced = 1, shape = array<i64: 16>} : (tensor<16xf32>) -> tensor<f32>
// CHECK:  func.return %total, %columns : tensor<f32>, tensor<16xf32>
// CPU-LABEL: func.func @both
// CPU:    %total = kernel.rowwise x(%x) {body = @square_sum, reduced = 2, shape = array<i64: 65536, 16>}
// CPU:    : (tensor<65536x16xf32>) -> tensor<f32>
// CPU:    %columns = kernel.colwise x(%x) {body = @sum, reduced = 1, shape = array<i64: 65536, 16>}
// CPU:    : (tensor<65536x16xf32>) -> tensor<16xf32>
// CPU:    func.return %total, %columns : tensor<f32>, tensor<16xf32>
func.func @both(%x: tensor<65536x16xf32>) -> (tensor<f32>, tensor<16xf32>) {
  %total = kernel.rowwise x(%x) {body = @square_sum, reduced = 2, shape = array<i64: 65536, 16>} : (tensor<65536x16xf32>) -> tensor<f32>
  %columns = kernel.colwise x(%x) {body = @sum, reduced = 1, shape = array<i64: 65536, 16>} : (tensor<65536x16xf32>) -> tensor<16xf32>
  func.return %total, %columns : tensor<f32>, tensor<16xf32>
}
