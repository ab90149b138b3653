// RUN: aicf-opt %s --select-kernels=target=sm_90 --bufferize --prefetch --split-input-file | filecheck %s
// RUN: aicf-opt %s -p "select-kernels{target=sm_90},bufferize,prefetch,plan-memory" --split-input-file | filecheck %s
// RUN: aicf-opt %s -p "select-kernels{target=sm_80},bufferize,prefetch" --split-input-file | filecheck %s --check-prefix=OLDER
// RUN: not aicf-opt %s -p "select-kernels{target=sm_90},bufferize,plan-memory,prefetch" --split-input-file 2>&1 | filecheck %s --check-prefix=LATE
// LATE: what is read ahead is chosen before there are addresses; run prefetch before plan-memory

// The first launch of a step reads the batch alone ahead, since the step before may still write the weight; the second its
// weight and x, but not what the first gives; a large product nothing.
// CHECK-LABEL: plan.program @chain
// CHECK:         plan.launch @k0 "gen_gemm_map_{{[0-9a-f]+}}[panel rows=16 columns=16 resident=2]"
// CHECK-SAME:      gemm_map a(@x) b(@w) x(@bias) ->
// CHECK-NEXT:      y(@h)
// CHECK-SAME:      {body = @shifted, ahead = array<i64: 0>}
// CHECK-NEXT:    plan.launch @k1 {{.*}} gemm_map a(@h) b(@v) x(@x) -> y(@y)
// CHECK-NEXT:      {body = @shifted, ahead = array<i64: 1, 2>} after @k0
// OLDER-LABEL: plan.program @chain
// OLDER-NOT:     ahead
scalar.body @shifted(%z: f32, %x: f32) -> f32 {
  %y = arith.addf %z, %x : f32
  scalar.yield %y : f32
}
func.func @chain(
    %x: tensor<32x32xf32> {aicf.role = "input", aicf.name = "x"},
    %w: tensor<32x32xf32> {aicf.role = "param", aicf.name = "w"},
    %v: tensor<32x32xf32> {aicf.role = "param", aicf.name = "v"},
    %bias: tensor<32x32xf32> {aicf.role = "param", aicf.name = "bias"})
    -> (tensor<32x32xf32> {aicf.role = "output", aicf.name = "y"}) {
  %h = kernel.gemm_map a(%x) b(%w) x(%bias) {body = @shifted} : (tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
  %y = kernel.gemm_map a(%h) b(%v) x(%x) {body = @shifted} : (tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
  func.return %y : tensor<32x32xf32>
}

// -----

// Rows of 33 elements do not start at multiples of 16 bytes, so a and b wait; the other operand does not.
// CHECK-LABEL: plan.program @odd
// CHECK:         plan.launch @k1 {{.*}} gemm_map a(@h) b(@v) x(@x) -> y(@y)
// CHECK-NEXT:      {body = @shifted, ahead = array<i64: 2>} after @k0
scalar.body @shifted(%z: f32, %x: f32) -> f32 {
  %y = arith.addf %z, %x : f32
  scalar.yield %y : f32
}
func.func @odd(
    %x: tensor<33x33xf32> {aicf.role = "input", aicf.name = "x"},
    %v: tensor<33x33xf32> {aicf.role = "param", aicf.name = "v"})
    -> (tensor<33x33xf32> {aicf.role = "output", aicf.name = "y"}) {
  %h = kernel.relu x(%x) : tensor<33x33xf32>
  %y = kernel.gemm_map a(%h) b(%v) x(%x) {body = @shifted} : (tensor<33x33xf32>, tensor<33x33xf32>, tensor<33x33xf32>) -> tensor<33x33xf32>
  func.return %y : tensor<33x33xf32>
}
