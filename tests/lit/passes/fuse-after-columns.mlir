// On a GPU the launch of sums of columns goes on with what follows from them for each element, where neighbours lie side by side.
// RUN: aicf-opt %s --fuse-after-columns=target=sm_90 | filecheck %s
// RUN: aicf-opt %s --fuse-after-columns | filecheck %s --check-prefix=CPU

scalar.body @mean(%0: f32) -> f32 {
  %1 = scalar.sum %0 : f32
  %2 = arith.constant 1.250000e-01 : f32
  %3 = arith.mulf %1, %2 : f32
  scalar.yield %3 : f32
}
scalar.body @centred(%0: f32, %1: f32) -> f32 {
  %2 = arith.subf %0, %1 : f32
  scalar.yield %2 : f32
}

// CHECK-LABEL: func.func @away_from_the_mean
// CHECK:       %y = kernel.colwise x(%x) {body = @mean_centred, reduced = 2, shape = array<i64: 32, 8, 8>}
// CHECK-NOT:   kernel.map
// CPU-LABEL:   func.func @away_from_the_mean
// CPU:         kernel.colwise
// CPU:         kernel.map
func.func @away_from_the_mean(%x: tensor<32x8x8xf32>) -> tensor<32x8x8xf32> {
  %mean = kernel.colwise x(%x) {body = @mean, reduced = 2, shape = array<i64: 32, 8, 8>} : (tensor<32x8x8xf32>) -> tensor<8xf32>
  %all = kernel.view %mean : (tensor<8xf32>) -> tensor<32x8x8xf32, strided<[0, 0, 1]>>
  %y = kernel.map x(%x, %all) {body = @centred, shape = array<i64: 32, 8, 8>}
    : (tensor<32x8x8xf32>, tensor<32x8x8xf32, strided<[0, 0, 1]>>) -> tensor<32x8x8xf32>
  func.return %y : tensor<32x8x8xf32>
}

// What lies the other way in memory would move a line for each element.
// CHECK-LABEL: func.func @of_a_transposed_tensor
// CHECK:       kernel.colwise
// CHECK:       kernel.map
func.func @of_a_transposed_tensor(%x: tensor<8x400xf32>) -> tensor<400x8xf32> {
  %turned = kernel.view %x : (tensor<8x400xf32>) -> tensor<400x8xf32, strided<[1, 400]>>
  %mean = kernel.colwise x(%turned) {body = @mean, reduced = 1, shape = array<i64: 400, 8>}
    : (tensor<400x8xf32, strided<[1, 400]>>) -> tensor<8xf32>
  %all = kernel.view %mean : (tensor<8xf32>) -> tensor<400x8xf32, strided<[0, 1]>>
  %y = kernel.map x(%turned, %all) {body = @centred, shape = array<i64: 400, 8>}
    : (tensor<400x8xf32, strided<[1, 400]>>, tensor<400x8xf32, strided<[0, 1]>>) -> tensor<400x8xf32>
  func.return %y : tensor<400x8xf32>
}

// A value that costs much is not computed again, but read again where it is stored.
scalar.body @exp(%0: f32) -> (f32, f32) {
  %1 = math.exp %0 : f32
  %2 = scalar.sum %1 : f32
  scalar.yield %1, %2 : f32, f32
}
scalar.body @quotient(%0: f32, %1: f32) -> f32 {
  %2 = arith.divf %0, %1 : f32
  scalar.yield %2 : f32
}

// CHECK-LABEL: func.func @softmax
// CHECK:       kernel.colwise
// CHECK:       kernel.map
func.func @softmax(%x: tensor<400x8xf32>) -> tensor<400x8xf32> {
  %e, %sum = kernel.colwise x(%x) {body = @exp, reduced = 1, shape = array<i64: 400, 8>}
    : (tensor<400x8xf32>) -> (tensor<400x8xf32>, tensor<8xf32>)
  %all = kernel.view %sum : (tensor<8xf32>) -> tensor<400x8xf32, strided<[0, 1]>>
  %y = kernel.map x(%e, %all) {body = @quotient, shape = array<i64: 400, 8>}
    : (tensor<400x8xf32>, tensor<400x8xf32, strided<[0, 1]>>) -> tensor<400x8xf32>
  func.return %y : tensor<400x8xf32>
}

// CHECK-LABEL: func.func @softmax_and_its_terms
// CHECK:       kernel.colwise x(%x) {body = @exp_quotient, reduced = 1, shape = array<i64: 400, 8>}
// CHECK-NOT:   kernel.map
func.func @softmax_and_its_terms(%x: tensor<400x8xf32>) -> (tensor<400x8xf32>, tensor<400x8xf32>) {
  %e, %sum = kernel.colwise x(%x) {body = @exp, reduced = 1, shape = array<i64: 400, 8>}
    : (tensor<400x8xf32>) -> (tensor<400x8xf32>, tensor<8xf32>)
  %all = kernel.view %sum : (tensor<8xf32>) -> tensor<400x8xf32, strided<[0, 1]>>
  %y = kernel.map x(%e, %all) {body = @quotient, shape = array<i64: 400, 8>}
    : (tensor<400x8xf32>, tensor<400x8xf32, strided<[0, 1]>>) -> tensor<400x8xf32>
  func.return %y, %e : tensor<400x8xf32>, tensor<400x8xf32>
}

// Of few rows most threads would idle in the second walk.
// CHECK-LABEL: func.func @few_rows
// CHECK:       kernel.colwise
// CHECK:       kernel.map
func.func @few_rows(%x: tensor<32x7x8xf32>) -> tensor<32x7x8xf32> {
  %mean = kernel.colwise x(%x) {body = @mean, reduced = 2, shape = array<i64: 32, 7, 8>} : (tensor<32x7x8xf32>) -> tensor<8xf32>
  %all = kernel.view %mean : (tensor<8xf32>) -> tensor<32x7x8xf32, strided<[0, 0, 1]>>
  %y = kernel.map x(%x, %all) {body = @centred, shape = array<i64: 32, 7, 8>}
    : (tensor<32x7x8xf32>, tensor<32x7x8xf32, strided<[0, 0, 1]>>) -> tensor<32x7x8xf32>
  func.return %y : tensor<32x7x8xf32>
}
