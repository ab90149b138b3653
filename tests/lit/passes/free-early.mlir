// RUN: aicf-opt %s --free-early --split-input-file | filecheck %s

// What frees memory runs before what takes some, where most is in use: the gradient of a weight before that of the input.
// CHECK-LABEL: plan.program @gradients
// CHECK:         plan.launch @k0
// CHECK-NEXT:    plan.launch @k2 "gemm_cpu_blas" gemm a(@h) b(@dy) -> out(@dw) {trans_a = true} after @k0
// CHECK-NEXT:    plan.launch @k1 "gemm_cpu_blas" gemm a(@dy) b(@w) -> out(@dh) {trans_b = true}
// CHECK-NEXT:    plan.launch @k3 "relu_cpu" relu x(@dh) -> y(@out) after @k1
plan.program @gradients target "cpu" {
  plan.slot @x : memref<4096x512xf32> input "x"
  plan.slot @dy : memref<4096x64xf32> input "dy"
  plan.slot @w : memref<512x64xf32> param "w"
  plan.slot @dw : memref<512x64xf32> grad "w"
  plan.slot @out : memref<4096x512xf32> output "out"
  plan.slot @h : memref<4096x512xf32> temp
  plan.slot @dh : memref<4096x512xf32> temp
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@h)
  plan.launch @k1 "gemm_cpu_blas" gemm a(@dy) b(@w) -> out(@dh) {trans_b = true}
  plan.launch @k2 "gemm_cpu_blas" gemm a(@h) b(@dy) -> out(@dw) {trans_a = true} after @k0
  plan.launch @k3 "relu_cpu" relu x(@dh) -> y(@out) after @k1
}

// -----

// The order stays where it saves less than a megabyte.
// CHECK-LABEL: plan.program @small
// CHECK:         plan.launch @k0
// CHECK-NEXT:    plan.launch @k1
// CHECK-NEXT:    plan.launch @k2
// CHECK-NEXT:    plan.launch @k3
plan.program @small target "cpu" {
  plan.slot @x : memref<40x512xf32> input "x"
  plan.slot @dy : memref<40x64xf32> input "dy"
  plan.slot @w : memref<512x64xf32> param "w"
  plan.slot @dw : memref<512x64xf32> grad "w"
  plan.slot @out : memref<40x512xf32> output "out"
  plan.slot @h : memref<40x512xf32> temp
  plan.slot @dh : memref<40x512xf32> temp
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@h)
  plan.launch @k1 "gemm_cpu_blas" gemm a(@dy) b(@w) -> out(@dh) {trans_b = true}
  plan.launch @k2 "gemm_cpu_blas" gemm a(@h) b(@dy) -> out(@dw) {trans_a = true} after @k0
  plan.launch @k3 "relu_cpu" relu x(@dh) -> y(@out) after @k1
}

// -----

// Nothing moves across a launch with which it has a hazard: @k2 reads what @k1 gives.
// CHECK-LABEL: plan.program @needed
// CHECK:         plan.launch @k0
// CHECK-NEXT:    plan.launch @k1
// CHECK-NEXT:    plan.launch @k2
plan.program @needed target "cpu" {
  plan.slot @x : memref<4096x512xf32> input "x"
  plan.slot @out : memref<4096x512xf32> output "out"
  plan.slot @h : memref<4096x512xf32> temp
  plan.slot @dh : memref<4096x512xf32> temp
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@h)
  plan.launch @k1 "relu_cpu" relu x(@x) -> y(@dh)
  plan.launch @k2 "mul_cpu" mul x(@h) y(@dh) -> z(@out) after @k0, @k1
}
