// On a GPU the launch of rows sums the columns of its results too, if a walk has whole rows in registers.
// RUN: aicf-opt %s --fuse-sums-of-results=target=sm_90 | filecheck %s
// RUN: aicf-opt %s --fuse-sums-of-results | filecheck %s --check-prefix=CPU

scalar.body @centred(%0: f32) -> f32 {
  %1 = scalar.sum %0 : f32
  %2 = arith.subf %0, %1 : f32
  scalar.yield %2 : f32
}

// The sum takes what a reader of the result reads: the rounded value.
// CHECK-LABEL: scalar.body @centred_sum(
// CHECK-NEXT:  %1 = scalar.sum %0 : f32
// CHECK-NEXT:  %2 = arith.subf %0, %1 : f32
// CHECK-NEXT:  %3 = arith.truncf %2 : f32 to bf16
// CHECK-NEXT:  %4 = arith.extf %3 : bf16 to f32
// CHECK-NEXT:  %5 = scalar.column_sum %4 : f32
// CHECK-NEXT:  scalar.yield %2, %5 : f32, f32

// CHECK-LABEL: func.func @gradient_of_a_bias
// CHECK:  %given, %bias = kernel.rowwise x(%x) {body = @centred_sum, reduced = 1, shape = array<i64: 8, 16, 64>}
// CHECK:  : (tensor<8x16x64xbf16>) -> (tensor<8x16x64xbf16>, tensor<64xbf16>)
// CHECK-NOT: kernel.reduce_sum
// CHECK:  kernel.gemm
// CPU-LABEL: func.func @gradient_of_a_bias
// CPU:    kernel.rowwise
// CPU:    kernel.gemm
// CPU:    kernel.reduce_sum
func.func @gradient_of_a_bias(%x: tensor<8x16x64xbf16>, %w: tensor<64x32xbf16>)
    -> (tensor<128x32xbf16>, tensor<64xbf16>) {
  %given = kernel.rowwise x(%x) {body = @centred, reduced = 1, shape = array<i64: 8, 16, 64>}
    : (tensor<8x16x64xbf16>) -> tensor<8x16x64xbf16>
  %flat = kernel.reshape %given : (tensor<8x16x64xbf16>) -> tensor<128x64xbf16>
  %product = kernel.gemm a(%flat) b(%w) : (tensor<128x64xbf16>, tensor<64x32xbf16>) -> tensor<128x32xbf16>
  %bias = kernel.reduce_sum x(%flat) {dims = array<i64: 0>} : (tensor<128x64xbf16>) -> tensor<64xbf16>
  func.return %product, %bias : tensor<128x32xbf16>, tensor<64xbf16>
}

// What follows from the sum alone comes along. A launch that takes more of each element than its sum stays.
scalar.body @widened(%0: f32) -> f32 {
  %1 = scalar.sum %0 : f32
  %2 = arith.truncf %1 : f32 to bf16
  %3 = arith.extf %2 : bf16 to f32
  scalar.yield %3 : f32
}
scalar.body @squares(%0: f32) -> f32 {
  %1 = arith.mulf %0, %0 : f32
  %2 = scalar.sum %1 : f32
  scalar.yield %2 : f32
}
// CHECK-LABEL: func.func @cast
// CHECK:  %given, %bias = kernel.rowwise x(%x) {body = @centred_sum_1, reduced = 1, shape = array<i64: 8, 16, 64>}
// CHECK:  : (tensor<8x16x64xbf16>) -> (tensor<8x16x64xbf16>, tensor<64xf32>)
// CHECK-NOT: @widened
// CHECK:  kernel.colwise x(%{{.*}}) {body = @squares
func.func @cast(%x: tensor<8x16x64xbf16>) -> (tensor<128x64xbf16>, tensor<64xf32>, tensor<64xf32>) {
  %given = kernel.rowwise x(%x) {body = @centred, reduced = 1, shape = array<i64: 8, 16, 64>}
    : (tensor<8x16x64xbf16>) -> tensor<8x16x64xbf16>
  %flat = kernel.reshape %given : (tensor<8x16x64xbf16>) -> tensor<128x64xbf16>
  %bias = kernel.colwise x(%flat) {body = @widened, reduced = 1, shape = array<i64: 128, 64>}
    : (tensor<128x64xbf16>) -> tensor<64xf32>
  %other = kernel.colwise x(%flat) {body = @squares, reduced = 1, shape = array<i64: 128, 64>}
    : (tensor<128x64xbf16>) -> tensor<64xf32>
  func.return %flat, %bias, %other : tensor<128x64xbf16>, tensor<64xf32>, tensor<64xf32>
}

// Sums of a part of the rows, means, and sums of few rows stay. So do those of rows that no walk holds.
// CHECK-LABEL: func.func @others
// CHECK-COUNT-4: kernel.reduce_sum
func.func @others(%x: tensor<8x16x64xbf16>, %few: tensor<16x64xbf16>, %long: tensor<256x50000xbf16>)
    -> (tensor<16x64xbf16>, tensor<64xbf16>, tensor<64xbf16>, tensor<50000xbf16>) {
  %0 = kernel.rowwise x(%x) {body = @centred, reduced = 1, shape = array<i64: 8, 16, 64>}
    : (tensor<8x16x64xbf16>) -> tensor<8x16x64xbf16>
  %part = kernel.reduce_sum x(%0) {dims = array<i64: 0>} : (tensor<8x16x64xbf16>) -> tensor<16x64xbf16>
  %flat = kernel.reshape %0 : (tensor<8x16x64xbf16>) -> tensor<128x64xbf16>
  %mean = kernel.reduce_sum x(%flat) {dims = array<i64: 0>, divisor = 128.0 : f64}
    : (tensor<128x64xbf16>) -> tensor<64xbf16>
  %1 = kernel.rowwise x(%few) {body = @centred, reduced = 1, shape = array<i64: 16, 64>}
    : (tensor<16x64xbf16>) -> tensor<16x64xbf16>
  %of_few = kernel.reduce_sum x(%1) {dims = array<i64: 0>} : (tensor<16x64xbf16>) -> tensor<64xbf16>
  %2 = kernel.rowwise x(%long) {body = @centred, reduced = 1, shape = array<i64: 256, 50000>}
    : (tensor<256x50000xbf16>) -> tensor<256x50000xbf16>
  %of_long = kernel.reduce_sum x(%2) {dims = array<i64: 0>} : (tensor<256x50000xbf16>) -> tensor<50000xbf16>
  func.return %part, %mean, %of_few, %of_long
    : tensor<16x64xbf16>, tensor<64xbf16>, tensor<64xbf16>, tensor<50000xbf16>
}
