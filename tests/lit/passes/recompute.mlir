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
