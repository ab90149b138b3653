// RUN: aicf-opt %s --recompute='target=sm_90' --split-input-file | filecheck %s
// RUN: aicf-opt %s --recompute --split-input-file | filecheck %s --check-prefix=CPU

// A gate's activation follows from what is activated, which its gradient reads in any case: it is not written for it.
// CHECK:       scalar.body @mul_silu_bwd_again(%0: f32, %1: f32, %2: f32) -> f32 {
// CHECK-NEXT:    %3 = arith.negf %2 : f32
// CHECK-NEXT:    %4 = math.exp %3 : f32
// CHECK-LABEL: func.func @gate
// CHECK-NEXT:    %[[M:.*]] = kernel.map x(%a, %b) {body = @silu_mul_again
// CHECK-SAME:      : tensor<1024x1024xbf16>
// CHECK:         kernel.map x(%dy, %p, %a) {body = @mul_silu_bwd_again
// CPU-LABEL:   func.func @gate
// CPU-NEXT:      %[[S:.*]], %[[M:.*]] = kernel.map x(%a, %b) {body = @silu_mul
scalar.body @silu_mul(%0: f32, %1: f32) -> (f32, f32) {
  %2 = arith.negf %0 : f32
  %3 = math.exp %2 : f32
  %4 = arith.constant 1.000000e+00 : f32
  %5 = arith.addf %3, %4 : f32
  %6 = arith.divf %0, %5 : f32
  %7 = arith.truncf %6 : f32 to bf16
  %8 = arith.extf %7 : bf16 to f32
  %9 = arith.mulf %8, %1 : f32
  scalar.yield %6, %9 : f32, f32
}
scalar.body @mul_silu_bwd(%0: f32, %1: f32, %2: f32, %3: f32) -> f32 {
  %4 = arith.mulf %0, %1 : f32
  %5 = arith.mulf %4, %2 : f32
  %6 = arith.addf %5, %3 : f32
  scalar.yield %6 : f32
}
func.func @gate(%a: tensor<1024x1024xbf16>, %b: tensor<1024x1024xbf16>, %dy: tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16> {
  %s, %m = kernel.map x(%a, %b) {body = @silu_mul, shape = array<i64: 1024, 1024>} : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>)
  %p = kernel.gemm a(%m) b(%m) : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
  %d = kernel.map x(%dy, %p, %s, %a) {body = @mul_silu_bwd, shape = array<i64: 1024, 1024>} : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>, tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
  func.return %d : tensor<1024x1024xbf16>
}

// -----

// A launch of which nothing else is read is left out, and so are views that nothing reads.
// CHECK-LABEL: func.func @alone
// CHECK-NEXT:    %[[P:.*]] = kernel.gemm
// CHECK-NEXT:    %[[D:.*]] = kernel.map x(%[[P]]) {body = @square_again
// CHECK-NEXT:    return %[[D]]
scalar.body @twice(%0: f32) -> f32 {
  %1 = arith.addf %0, %0 : f32
  scalar.yield %1 : f32
}
scalar.body @square(%0: f32, %1: f32) -> f32 {
  %2 = arith.mulf %0, %1 : f32
  scalar.yield %2 : f32
}
func.func @alone(%a: tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {
  %p = kernel.gemm a(%a) b(%a) : tensor<1024x1024xf32>
  %s = kernel.map x(%p) {body = @twice, shape = array<i64: 1024, 1024>} : tensor<1024x1024xf32>
  %v = kernel.reshape %s : (tensor<1024x1024xf32>) -> tensor<1048576xf32>
  %d = kernel.map x(%s, %p) {body = @square, shape = array<i64: 1024, 1024>} : tensor<1024x1024xf32>
  func.return %d : tensor<1024x1024xf32>
}

// -----

// A cast to more bytes is made where it is read. One in another order, and one to fewer bytes, are read as they are.
// CHECK-LABEL: func.func @casts
// CHECK-NEXT:    %[[P:.*]] = kernel.gemm
// CHECK-NEXT:    %[[D:.*]] = kernel.map x(%[[P]]) {body = @product_again
// CHECK-NEXT:      : (tensor<1024x1024xbf16>) -> tensor<1024x1024xf32>
// CHECK-NEXT:    return %[[D]]
// CHECK-LABEL: func.func @turned
// CHECK-NEXT:    %[[P:.*]] = kernel.gemm
// CHECK-NEXT:    kernel.view
// CHECK-NEXT:    %[[W:.*]] = kernel.map
// CHECK-NEXT:      : (
// CHECK-NEXT:    kernel.map x(%[[W]], %[[W]])
// CHECK-LABEL: func.func @rounded
// CHECK-NEXT:    %[[P:.*]] = kernel.gemm
// CHECK-NEXT:    %[[W:.*]] = kernel.map
// CHECK-NEXT:      : (
// CHECK-NEXT:    kernel.map x(%[[W]], %[[W]])
scalar.body @widen_and_square(%0: f32) -> (f32, f32) {
  %1 = arith.mulf %0, %0 : f32
  scalar.yield %0, %1 : f32, f32
}
scalar.body @same(%0: f32) -> f32 {
  scalar.yield %0 : f32
}
scalar.body @product(%0: f32, %1: f32) -> f32 {
  %2 = arith.mulf %0, %1 : f32
  scalar.yield %2 : f32
}
func.func @casts(%a: tensor<1024x1024xbf16>) -> tensor<1024x1024xf32> {
  %p = kernel.gemm a(%a) b(%a) : tensor<1024x1024xbf16>
  %w, %y = kernel.map x(%p) {body = @widen_and_square, shape = array<i64: 1024, 1024>} : (tensor<1024x1024xbf16>) -> (tensor<1024x1024xf32>, tensor<1024x1024xf32>)
  %d = kernel.map x(%w, %y) {body = @product, shape = array<i64: 1024, 1024>} : tensor<1024x1024xf32>
  func.return %d : tensor<1024x1024xf32>
}
func.func @turned(%a: tensor<1024x1024xbf16>) -> tensor<1024x1024xf32> {
  %p = kernel.gemm a(%a) b(%a) : tensor<1024x1024xbf16>
  %t = kernel.view %p : (tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16, strided<[1, 1024]>>
  %w = kernel.map x(%t) {body = @same, shape = array<i64: 1024, 1024>} : (tensor<1024x1024xbf16, strided<[1, 1024]>>) -> tensor<1024x1024xf32>
  %d = kernel.map x(%w, %w) {body = @product, shape = array<i64: 1024, 1024>} : tensor<1024x1024xf32>
  func.return %d : tensor<1024x1024xf32>
}
func.func @rounded(%a: tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {
  %p = kernel.gemm a(%a) b(%a) : tensor<1024x1024xf32>
  %w = kernel.map x(%p) {body = @same, shape = array<i64: 1024, 1024>} : (tensor<1024x1024xf32>) -> tensor<1024x1024xbf16>
  %d = kernel.map x(%w, %w) {body = @product, shape = array<i64: 1024, 1024>} : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xf32>
  func.return %d : tensor<1024x1024xf32>
}

// -----

// A table of another shape is read as it is.
// CHECK-LABEL: func.func @table
// CHECK-NEXT:    kernel.map x(%a, %b) {body = @add
// CHECK-NEXT:    kernel.reshape
// CHECK-NEXT:    kernel.map x(%a, %b, %at) table(
scalar.body @add(%0: f32, %1: f32) -> f32 {
  %2 = arith.addf %0, %1 : f32
  scalar.yield %2 : f32
}
scalar.body @take(%0: f32, %1: f32, %2: i64, %3: memref<?xf32>) -> f32 {
  %4 = scalar.load %3[%2] : memref<?xf32>
  %5 = arith.addf %0, %1 : f32
  %6 = arith.mulf %4, %5 : f32
  scalar.yield %6 : f32
}
func.func @table(%a: tensor<1024x1024xf32>, %b: tensor<1024x1024xf32>, %at: tensor<1024x1024xi64>) -> tensor<1024x1024xf32> {
  %s = kernel.map x(%a, %b) {body = @add, shape = array<i64: 1024, 1024>} : tensor<1024x1024xf32>
  %v = kernel.reshape %s : (tensor<1024x1024xf32>) -> tensor<1048576xf32>
  %d = kernel.map x(%a, %b, %at) table(%v) {body = @take, shape = array<i64: 1024, 1024>}
    : (tensor<1024x1024xf32>, tensor<1024x1024xf32>, tensor<1024x1024xi64>, tensor<1048576xf32>) -> tensor<1024x1024xf32>
  func.return %d : tensor<1024x1024xf32>
}
