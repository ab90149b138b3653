// How bodies of generated kernels are written: custom text and generic text read back as the same op.
// RUN: aicf-opt %s | filecheck %s
// RUN: ROUNDTRIP
// RUN: GENERIC

// Reductions run over the dimensions that the kernel reduces.
// CHECK:       scalar.body @reductions(%x: f32, %n: i64) -> (f32, f32, f32, i64) {
// CHECK-NEXT:    %sum = scalar.sum %x : f32
// CHECK-NEXT:    %max = scalar.max %x : f32
// CHECK-NEXT:    %min = scalar.min %x : f32
// CHECK-NEXT:    %prod = scalar.prod %n : i64
// CHECK-NEXT:    scalar.yield %sum, %max, %min, %prod : f32, f32, f32, i64
// GENERIC:     %sum = "scalar.sum"(%x) : (f32) -> f32
scalar.body @reductions(%x: f32, %n: i64) -> (f32, f32, f32, i64) {
  %sum = scalar.sum %x : f32
  %max = scalar.max %x : f32
  %min = scalar.min %x : f32
  %prod = scalar.prod %n : i64
  scalar.yield %sum, %max, %min, %prod : f32, f32, f32, i64
}

// A sum over the dimensions that a rowwise kernel keeps, and what follows from it.
// CHECK:       scalar.body @with_columns(%x: f32) -> (f32, f32) {
// CHECK:         %total = scalar.column_sum %x : f32
// GENERIC:     %total = "scalar.column_sum"(%x) : (f32) -> f32
scalar.body @with_columns(%x: f32) -> (f32, f32) {
  %largest = scalar.max %x : f32
  %y = arith.subf %x, %largest : f32
  %total = scalar.column_sum %x : f32
  %half = arith.constant 5.000000e-01 : f32
  %mean = arith.mulf %total, %half : f32
  scalar.yield %y, %mean : f32, f32
}

// The position of an element, and an element of a whole operand, a table.
// CHECK:       scalar.body @rows(%table: memref<?x?xf32>, %row: i64) -> f32 {
// CHECK-NEXT:    %column = scalar.index 1
// CHECK-NEXT:    %value = scalar.load %table[%row, %column] : memref<?x?xf32>
// CHECK-NEXT:    scalar.yield %value : f32
// GENERIC:     %column = "scalar.index"() <{dim = 1 : i64}> : () -> i64
// GENERIC:     %value = "scalar.load"(%table, %row, %column) : (memref<?x?xf32>, i64, i64) -> f32
scalar.body @rows(%table: memref<?x?xf32>, %row: i64) -> f32 {
  %column = scalar.index 1
  %value = scalar.load %table[%row, %column] : memref<?x?xf32>
  scalar.yield %value : f32
}

// A word of 32 random bits, one of the four of an element.
// CHECK:       scalar.body @random(%seed: i64, %step: i64, %site: i64) -> i64 {
// CHECK-NEXT:    %element = scalar.index 0
// CHECK-NEXT:    %word = scalar.philox %seed, %step, %site, %element word 3
// GENERIC:     %word = "scalar.philox"(%seed, %step, %site, %element) <{word = 3 : i64}> : (i64, i64, i64, i64) -> i64
scalar.body @random(%seed: i64, %step: i64, %site: i64) -> i64 {
  %element = scalar.index 0
  %word = scalar.philox %seed, %step, %site, %element word 3
  scalar.yield %word : i64
}

// The rest is arith and math on scalars, without fast-math flags.
// CHECK:       scalar.body @gelu(%x: f32) -> f32 {
// CHECK:         %{{.*}} = math.erf %{{.*}} : f32
// CHECK:         scalar.yield %{{.*}} : f32
scalar.body @gelu(%x: f32) -> f32 {
  %root = arith.constant 0.707106769 : f32
  %one = arith.constant 1.000000e+00 : f32
  %half = arith.constant 5.000000e-01 : f32
  %scaled = arith.mulf %x, %root : f32
  %erf = math.erf %scaled : f32
  %sum = arith.addf %one, %erf : f32
  %halved = arith.mulf %half, %sum : f32
  %y = arith.mulf %x, %halved : f32
  scalar.yield %y : f32
}
