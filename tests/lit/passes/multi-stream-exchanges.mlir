// RUN: aicf-opt %s --multi-stream | filecheck %s
// RUN: aicf-opt %s -p "multi-stream{branches=1}" | filecheck %s --check-prefix=ONE

// An exchange that is on the longest path leaves branch 0 to what could run meanwhile; the last one, for which all waits, stays.
// ONE-NOT: branch
// CHECK-LABEL:   plan.program @exchanges
// CHECK:           plan.launch @k1 "all_gather_cuda" {{.*}} branch 1 after @k0
// CHECK-NEXT:      plan.launch @k2 "neg_f32_vec4" neg x(@x) -> y(@b){{$}}
// CHECK-NEXT:      plan.launch @k3 "all_gather_cuda" {{.*}} ranks = 2} after @k1, @k2
// CHECK-NEXT:      plan.launch @k4 "relu_f32_vec4" relu x(@b_of) -> y(@y) after @k3
plan.program @exchanges target "sm_90" {
  plan.slot @x : memref<4194304xf32> input "x"
  plan.slot @a : memref<4194304xf32> temp
  plan.slot @b : memref<4194304xf32> temp
  plan.slot @a_of : memref<2x4194304xf32> temp
  plan.slot @b_of : memref<2x4194304xf32> temp
  plan.slot @y : memref<2x4194304xf32> output "y"
  plan.launch @k0 "neg_f32_vec4" neg x(@x) -> y(@a)
  plan.launch @k1 "all_gather_cuda" all_gather x(@a) -> y(@a_of) {group = "dp", ranks = 2} after @k0
  plan.launch @k2 "neg_f32_vec4" neg x(@x) -> y(@b)
  plan.launch @k3 "all_gather_cuda" all_gather x(@b) after(@a_of) -> y(@b_of) {group = "dp", ranks = 2} after @k1, @k2
  plan.launch @k4 "relu_f32_vec4" relu x(@b_of) -> y(@y) after @k3
}
