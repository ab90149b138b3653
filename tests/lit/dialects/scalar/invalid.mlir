// What a body refuses: types and operations that it does not have, and launches that it does not fit.
// RUN: aicf-opt %s --split-input-file --verify-diagnostics

// expected-error@below {{arith.addf: expected 2 of one float type, got (f16, f16) -> f16}}
scalar.body @f(%x: f16) -> f16 {
  %y = arith.addf %x, %x : f16
  scalar.yield %y : f16
}

// -----

// expected-error@below {{arith.addf: bodies compute without fast-math flags, got #arith.fastmath<fast>}}
scalar.body @f(%x: f32) -> f32 {
  %y = arith.addf %x, %x fastmath<fast> : f32
  scalar.yield %y : f32
}

// -----

// expected-error@below {{scalar.load: expected a table and an i64 for each of its dimensions, got (?x?xf32, i64) -> f32}}
scalar.body @f(%t: memref<?x?xf32>, %i: i64) -> f32 {
  %y = scalar.load %t[%i] : memref<?x?xf32>
  scalar.yield %y : f32
}

// -----

// expected-error@below {{expected a table such as memref<?x?xf32>, got memref<4xf32>}}
scalar.body @f(%t: memref<4xf32>, %i: i64) -> f32 {
  %y = scalar.load %t[%i] : memref<4xf32>
  scalar.yield %y : f32
}

// -----

// expected-error@below {{'test.op' is no operation of a body}}
scalar.body @f(%x: f32) -> f32 {
  "test.op"() : () -> ()
  scalar.yield %x : f32
}

// -----

// expected-error@below {{expected @f to end in a scalar.yield of these types}}
scalar.body @f(%x: f32) -> i64 {
  scalar.yield %x : f32
}

// -----

// expected-error@below {{scalar.philox: expected four i64, a word from 0 to 3 and an i64, got (i64, i64, i64, i64) -> i64 with 4}}
scalar.body @f(%s: i64) -> i64 {
  %y = scalar.philox %s, %s, %s, %s word 4
  scalar.yield %y : i64
}

// -----

scalar.body @f(%s: i64) -> i64 {
  // expected-error@below {{expected a seed, a step, a site and an element}}
  %y = scalar.philox %s, %s, %s word 0
  scalar.yield %y : i64
}
