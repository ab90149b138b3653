// RUN: aicf-opt %s --select-kernels | filecheck %s
// RUN: aicf-opt %s --select-kernels | aicf-run - --compare=interp | filecheck %s --check-prefix=RAN
// RUN: not aicf-run %s 2>&1 | filecheck %s --check-prefix=EMPTY
// RUN: aicf-opt %s --select-kernels | sed 's/chunk=2048 lanes=4/chunk=512 lanes=8/' | aicf-run - --compare=interp | filecheck %s --check-prefix=RAN
// RUN: aicf-opt %s --select-kernels | sed 's/.map chunk=2048 lanes=4.//' | aicf-run - --compare=interp | filecheck %s --check-prefix=RAN
// RUN: aicf-opt %s --select-kernels | sed 's/chunk=2048/chunk=1000/' | not aicf-run - 2>&1 | filecheck %s --check-prefix=ODD

// In a plan an empty id is filled in, for the target of the plan; an id that is there is kept.
// A generated kernel has its schedule in brackets, which may be edited.
// CHECK: plan.launch @k0 "{{gen_map_[0-9a-f]+}}[map chunk=2048 lanes=4]" map
// CHECK: plan.launch @k1 "relu_cpu" relu
// CHECK: plan.launch @k2 "relu_cpu" relu
// RAN: y
// ODD: schedule 'map chunk=1000 lanes=4': expected chunk in [128, 256,
// EMPTY: no kernel id; write one, or run the pass select-kernels
scalar.body @scaled(%0: f32) -> f32 {
  %1 = arith.constant 3.0 : f32
  %2 = arith.mulf %0, %1 : f32
  scalar.yield %2 : f32
}
plan.program @edited target "cpu" peak 768 {
  plan.arena @input 256
  plan.arena @output 256
  plan.arena @temp 256
  plan.slot @x in @input[0] : memref<4xf32> input "x"
  plan.slot @y in @output[0] : memref<4xf32> output "y"
  plan.slot @h in @temp[0] : memref<4xf32> temp live 0..2
  plan.launch @k0 "" map x(@x) -> y(@h) {body = @scaled, shape = array<i64: 4>}
  plan.launch @k1 "" relu x(@h) -> y(@h) after @k0
  plan.launch @k2 "relu_cpu" relu x(@h) -> y(@y) after @k1
}
