// A value of 16 bits that one op of a launch reads of another is rounded, as if a tensor lay between them.
// RUN: aicf-opt %s --fuse --split-input-file | filecheck %s
// RUN: aicf-opt %s -p 'fuse{back-to-back-rows=64},dce' --split-input-file | filecheck %s --check-prefix=CHAIN

// CHECK-LABEL: scalar.body @mul(%0: f32) -> f32 {
// CHECK-NEXT:    %1 = arith.truncf %0 : f32 to f16
// CHECK-NEXT:    %2 = arith.extf %1 : f16 to f32
// CHECK-NEXT:    %3 = arith.mulf %2, %2 : f32
// CHECK-NEXT:    scalar.yield %3 : f32
// CHECK:       kernel.gemm_map a(%x) b(%w) {body = @mul}
func.func @product(%x: tensor<4x8xf16>, %w: tensor<8x2xf16>) -> tensor<4x2xf16> {
  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf16>, tensor<8x2xf16>) -> tensor<4x2xf16>
  %z = kernel.mul x(%y) y(%y) : tensor<4x2xf16>
  func.return %z : tensor<4x2xf16>
}

// -----

// A bias is added to the sums, as torch does. What is cast is rounded once, after what only changes signs.
// CHECK-LABEL: scalar.body @bias_neg_copy(%0: f32, %1: f32) -> (f32, f32) {
// CHECK-NEXT:    %2 = arith.addf %0, %1 : f32
// CHECK-NEXT:    %3 = arith.negf %2 : f32
// CHECK-NEXT:    %4 = arith.truncf %3 : f32 to f16
// CHECK-NEXT:    %5 = arith.extf %4 : f16 to f32
// CHECK-NEXT:    scalar.yield %2, %5 : f32, f32
func.func @bias(%x: tensor<4x8xf16>, %w: tensor<8x2xf16>, %b: tensor<2xf16>) -> (tensor<4x2xf16>, tensor<4x2xf32>) {
  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf16>, tensor<8x2xf16>) -> tensor<4x2xf16>
  %z = kernel.bias_add x(%y) bias(%b) : (tensor<4x2xf16>, tensor<2xf16>) -> tensor<4x2xf16>
  %u = kernel.neg x(%z) : tensor<4x2xf16>
  %v = kernel.copy x(%u) : (tensor<4x2xf16>) -> tensor<4x2xf32>
  func.return %z, %v : tensor<4x2xf16>, tensor<4x2xf32>
}

// -----

// A product that something else reads too has one value for both.
// CHECK-LABEL: scalar.body @bias_add(%0: f32, %1: f32) -> (f32, f32) {
// CHECK-NEXT:    %2 = arith.truncf %0 : f32 to f16
// CHECK-NEXT:    %3 = arith.extf %2 : f16 to f32
// CHECK-NEXT:    %4 = arith.addf %3, %1 : f32
// CHECK-NEXT:    scalar.yield %0, %4 : f32, f32
func.func @shared(%x: tensor<4x8xf16>, %w: tensor<8x2xf16>, %b: tensor<2xf16>) -> (tensor<4x2xf16>, tensor<4x2xf16>) {
  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf16>, tensor<8x2xf16>) -> tensor<4x2xf16>
  %z = kernel.bias_add x(%y) bias(%b) : (tensor<4x2xf16>, tensor<2xf16>) -> tensor<4x2xf16>
  func.return %y, %z : tensor<4x2xf16>, tensor<4x2xf16>
}

// -----

// Elements of one tensor that are compared are read where they are stored, all of them.
// CHECK-LABEL: func.func @order
// CHECK:         %y = kernel.map
// CHECK:         kernel.view %y
// CHECK:         kernel.view %y
scalar.body @add(%0: f32) -> f32 {
  %1 = arith.constant 0.1 : f32
  %2 = arith.addf %0, %1 : f32
  scalar.yield %2 : f32
}
scalar.body @rank(%0: f32, %1: f32) -> i64 {
  %2 = arith.cmpf olt, %0, %1 : f32
  %3 = arith.extui %2 : i1 to i64
  %4 = scalar.sum %3 : i64
  scalar.yield %4 : i64
}
func.func @order(%x: tensor<4x8xf32>) -> tensor<4x8xi64> {
  %y = kernel.map x(%x) {body = @add, shape = array<i64: 4, 8>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %other = kernel.view %y : (tensor<4x8xf32>) -> tensor<4x8x8xf32, strided<[8, 0, 1]>>
  %own = kernel.view %y : (tensor<4x8xf32>) -> tensor<4x8x8xf32, strided<[8, 1, 0]>>
  %r = kernel.rowwise x(%other, %own) {body = @rank, reduced = 1, shape = array<i64: 4, 8, 8>}
    : (tensor<4x8x8xf32, strided<[8, 0, 1]>>, tensor<4x8x8xf32, strided<[8, 1, 0]>>) -> tensor<4x8xi64>
  func.return %r : tensor<4x8xi64>
}

// -----

// A constant is the number that its type has.
// CHECK-LABEL: scalar.body @mul_add(%0: f32) -> f32 {
// CHECK-NEXT:    %1 = arith.constant 0.100097656 : f32
func.func @constant(%x: tensor<4x8xbf16>) -> tensor<4x8xbf16> {
  %c = kernel.constant {value = 0.1} : tensor<4x8xbf16>
  %y = kernel.mul x(%x) y(%c) : tensor<4x8xbf16>
  %z = kernel.add x(%y) y(%c) : tensor<4x8xbf16>
  func.return %z : tensor<4x8xbf16>
}

// -----

// Numbers that are chosen are rounded where they are written.
// CHECK-LABEL: scalar.body @mul_neg_relu(%0: f32, %1: f32) -> f32 {
// CHECK-NOT:     arith.truncf
// CHECK:       kernel.map x(%x, %y) {body = @mul_neg_relu
func.func @chosen(%x: tensor<4x2xf16>, %y: tensor<4x2xf16>) -> tensor<4x2xf16> {
  %z = kernel.mul x(%x) y(%y) : tensor<4x2xf16>
  %u = kernel.neg x(%z) : tensor<4x2xf16>
  %v = kernel.relu x(%u) : tensor<4x2xf16>
  func.return %v : tensor<4x2xf16>
}

// -----

// A sum is of rounded numbers.
// CHECK-LABEL: scalar.body @mul_reduce_sum(%0: f32) -> (f32, f32) {
// CHECK-NEXT:    %1 = arith.mulf %0, %0 : f32
// CHECK-NEXT:    %2 = arith.truncf %1 : f32 to f16
// CHECK-NEXT:    %3 = arith.extf %2 : f16 to f32
// CHECK-NEXT:    %4 = scalar.sum %3 : f32
// CHECK-NEXT:    scalar.yield %1, %4 : f32, f32
func.func @again(%x: tensor<64x8xf16>, %w: tensor<8x8xf16>) -> (tensor<64x8xf16>, tensor<64x8xf16>, tensor<8xf16>) {
  %z = kernel.mul x(%x) y(%x) : tensor<64x8xf16>
  %y = kernel.gemm a(%z) b(%w) : (tensor<64x8xf16>, tensor<8x8xf16>) -> tensor<64x8xf16>
  %u = kernel.mul x(%z) y(%y) : tensor<64x8xf16>
  %s = kernel.reduce_sum x(%z) {dims = array<i64: 0>} : (tensor<64x8xf16>) -> tensor<8xf16>
  func.return %u, %y, %s : tensor<64x8xf16>, tensor<64x8xf16>, tensor<8xf16>
}

// -----

// So is a bf16: what is stored and what is read on are one value.
// CHECK-LABEL: scalar.body @mul(%0: f32) -> f32 {
// CHECK-NEXT:    %1 = arith.truncf %0 : f32 to bf16
// CHECK-NEXT:    %2 = arith.extf %1 : bf16 to f32
// CHECK-NEXT:    %3 = arith.mulf %2, %2 : f32
// CHECK-NEXT:    scalar.yield %3 : f32
func.func @bf16(%x: tensor<4x8xbf16>, %w: tensor<8x2xbf16>) -> tensor<4x2xbf16> {
  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xbf16>, tensor<8x2xbf16>) -> tensor<4x2xbf16>
  %z = kernel.mul x(%y) y(%y) : tensor<4x2xbf16>
  func.return %z : tensor<4x2xbf16>
}

// -----

// What a prebuilt kernel rounds, a body does too.
// CHECK-LABEL: scalar.body @silu_mul(%0: f32, %1: f32) -> f32 {
// CHECK-NEXT:    %2 = arith.truncf %0 : f32 to f16
// CHECK-NEXT:    %3 = arith.extf %2 : f16 to f32
// CHECK:         %14 = arith.truncf %13 : f32 to f16
// CHECK-NEXT:    %15 = arith.extf %14 : f16 to f32
// CHECK-NEXT:    %16 = arith.mulf %15, %1 : f32
// CHECK-NEXT:    scalar.yield %16 : f32
func.func @activation(%x: tensor<4x8xf16>, %w: tensor<8x2xf16>, %s: tensor<4x2xf16>) -> tensor<4x2xf16> {
  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf16>, tensor<8x2xf16>) -> tensor<4x2xf16>
  %z = kernel.silu_bwd dy(%y) saved(%s) : tensor<4x2xf16>
  %u = kernel.mul x(%z) y(%s) : tensor<4x2xf16>
  func.return %u : tensor<4x2xf16>
}

// -----

// CHAIN-LABEL: scalar.body @tanh_bwd_reduce_sum(%0: f32, %1: f32) -> f32 {
// CHAIN-NEXT:    %2 = arith.truncf %0 : f32 to f16
// CHAIN-NEXT:    %3 = arith.extf %2 : f16 to f32
// CHAIN-NOT:     arith.truncf
// CHAIN:       scalar.body @bias_add_relu(%0: f32, %1: f32) -> f32 {
// CHAIN-NOT:     arith.truncf
// CHAIN:       links = ["b0 x0 -> next f16", "b0 x1 -> write sum"]
func.func @chain(%x: tensor<64x16xf16>, %w: tensor<16x16xf16>, %b: tensor<16xf16>, %h: tensor<64x16xf16>)
    -> (tensor<64x16xf16>, tensor<16xf16>) {
  %z0 = kernel.gemm a(%x) b(%w) : (tensor<64x16xf16>, tensor<16x16xf16>) -> tensor<64x16xf16>
  %s0 = kernel.bias_add x(%z0) bias(%b) : (tensor<64x16xf16>, tensor<16xf16>) -> tensor<64x16xf16>
  %a = kernel.relu x(%s0) : tensor<64x16xf16>
  %z1 = kernel.gemm a(%a) b(%w) : (tensor<64x16xf16>, tensor<16x16xf16>) -> tensor<64x16xf16>
  %d = kernel.tanh_bwd dy(%z1) saved(%h) : tensor<64x16xf16>
  %s = kernel.reduce_sum x(%d) {dims = array<i64: 0>} : (tensor<64x16xf16>) -> tensor<16xf16>
  func.return %d, %s : tensor<64x16xf16>, tensor<16xf16>
}
