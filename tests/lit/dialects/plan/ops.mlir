// Every op of plan: custom text and generic text read back as the same op.
// RUN: aicf-opt %s | filecheck %s
// RUN: ROUNDTRIP
// RUN: GENERIC

// With addresses: numbers are plain, ranges are for people, both read back.
// CHECK:        plan.program @planned target "cpu" peak 2304 {
// GENERIC:      "plan.program"() <{sym_name = "planned", target = "cpu", peak = 2304 : i64}> ({
plan.program @planned target "cpu" peak 2304 {
  // CHECK-NEXT: plan.arena @input 512
  // GENERIC:    "plan.arena"() <{sym_name = "input", size = 512 : i64}> : () -> ()
  plan.arena @input 512
  plan.arena @param 256
  plan.arena @state 256
  plan.arena @host_scalar 256
  plan.arena @const 256
  plan.arena @temp 512
  plan.arena @output 256
  // CHECK:      plan.slot @x in @input[0] : memref<4x8xf32> input "x"
  // GENERIC:    "plan.slot"() <{sym_name = "x", arena = @input, offset = 0 : i64, type = memref<4x8xf32>, role = "input", label = "x"}> : () -> ()
  plan.slot @x in @input[0] : memref<4x8xf32> input "x"
  // CHECK-NEXT: plan.slot @v0 in @input[0] : memref<32xf32> input alias @x
  plan.slot @v0 in @input[0] : memref<32xf32> input alias @x
  // CHECK-NEXT: plan.slot @"a b" in @input[256] : memref<32xf32> input "a \22b\22"
  plan.slot @"a b" in @input[256] : memref<32xf32> input "a \22b\22"
  // CHECK-NEXT: plan.slot @_0.weight in @param[0] : memref<32xf32> param "0.weight"
  plan.slot @_0.weight in @param[0] : memref<32xf32> param "0.weight"
  plan.slot @step in @state[0] : memref<1xf32> state "step"
  plan.slot @lr in @host_scalar[0] : memref<f64> host_scalar "lr"
  // CHECK:      plan.slot @c0 in @const[0] : memref<f32> const -0.5
  plan.slot @c0 in @const[0] : memref<f32> const -0.5
  // CHECK-NEXT: plan.slot @v1 in @temp[0] : memref<32xf32> temp live 0..1
  // GENERIC:    live = array<i64: 0, 1>
  plan.slot @v1 in @temp[0] : memref<32xf32> temp live 0..1
  // CHECK-NEXT: plan.slot @v2 in @temp[256] : memref<64xi8> temp live 0..0
  plan.slot @v2 in @temp[256] : memref<64xi8> temp live 0..0
  // CHECK-NEXT: plan.slot @loss in @output[0] : memref<f32> output "loss"
  plan.slot @loss in @output[0] : memref<f32> output "loss"
  // CHECK-NEXT: plan.launch @k0 "add_cpu" add x(@v0) y(@"a b") -> z(@v1) workspace @v2
  // GENERIC:    "plan.launch"() <{sym_name = "k0", kernel_id = "add_cpu", op = "add", inputs = [@v0, @"a b"], outputs = [@v1], attrs = {}, workspace = @v2}> : () -> ()
  plan.launch @k0 "add_cpu" add x(@v0) y(@"a b") -> z(@v1) workspace @v2
  // CHECK-NEXT: plan.launch @k1 "reduce_sum_cpu" reduce_sum x(@v1) -> y(@loss) {dims = array<i64: 0>, divisor = 32.0} after @k0
  // GENERIC:    attrs = {dims = array<i64: 0>, divisor = 3.200000e+01 : f64}, after = [@k0]}> : () -> ()
  plan.launch @k1 "reduce_sum_cpu" reduce_sum x(@v1) -> y(@loss) {dims = array<i64: 0>, divisor = 32.0} after @k0
  // CHECK-NEXT: plan.launch @k2 "advance_cpu" advance step(@step) -> step(@step)
  plan.launch @k2 "advance_cpu" advance step(@step) -> step(@step)
  // CHECK-NEXT: plan.launch @k3 "sgd_step_cpu" sgd_step p(@_0.weight) g(@"a b") lr(@lr) weight_decay(@lr) -> p(@_0.weight)
  // CHECK-NEXT:   {groups = array<i64: 0>} after @k0, @k2
  plan.launch @k3 "sgd_step_cpu" sgd_step p(@_0.weight) g(@"a b") lr(@lr) weight_decay(@lr) -> p(@_0.weight) {groups = array<i64: 0>} after @k0, @k2
}

// Without: before plan-memory.
// CHECK:        plan.program @unplanned target "sm_90" attributes {owner = "me"} {
plan.program @unplanned target "sm_90" attributes {owner = "me"} {
  // CHECK-NEXT: plan.slot @x : memref<4x8xbf16> input "x"
  plan.slot @x : memref<4x8xbf16> input "x"
  // CHECK-NEXT: plan.slot @v : memref<4x8xbf16> temp attributes {note = "kept"}
  plan.slot @v : memref<4x8xbf16> temp attributes {note = "kept"}
  // CHECK-NEXT: plan.launch @k0 "relu_bf16_half2" relu x(@x) -> y(@v) attributes {note}
  plan.launch @k0 "relu_bf16_half2" relu x(@x) -> y(@v) attributes {note}
}

// CHECK:        plan.program @empty target "cpu" {
// CHECK-NEXT:   }
plan.program @empty target "cpu" {
}

// A status, and a launch that it skips.
// CHECK:        plan.program @checked target "cpu" {
plan.program @checked target "cpu" {
  plan.slot @t : memref<4xi64> input "t"
  plan.slot @step : memref<1xf32> state "step"
  // CHECK:      plan.slot @failed : memref<3xi64> status "failed"
  plan.slot @failed : memref<3xi64> status "failed"
  plan.launch @k0 "check_index_cpu" check_index status(@failed) target(@t) -> status(@failed) {classes = array<i64: 2>, code = 1}
  // CHECK:      plan.launch @k1 "advance_cpu" advance step(@step) -> step(@step) predicate not @failed after @k0
  // GENERIC:    attrs = {}, predicate = @failed, after = [@k0]}> : () -> ()
  plan.launch @k1 "advance_cpu" advance step(@step) -> step(@step) predicate not @failed after @k0
}

// A launch on a branch of a captured graph.
// CHECK:        plan.program @branched target "sm_90" {
plan.program @branched target "sm_90" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @y : memref<4xf32> output "y"
  plan.slot @z : memref<4xf32> output "z"
  plan.slot @w : memref<8xi8> temp
  // CHECK:      plan.launch @k0 "relu_f32_vec4" relu x(@x) -> y(@y) branch 1
  plan.launch @k0 "relu_f32_vec4" relu x(@x) -> y(@y) branch 1
  // CHECK-NEXT: plan.launch @k1 "relu_f32_vec4" relu x(@y) -> y(@z) workspace @w branch 15 after @k0
  // GENERIC:    branch = 15 : i64
  plan.launch @k1 "relu_f32_vec4" relu x(@y) -> y(@z) workspace @w branch 15 after @k0
}
