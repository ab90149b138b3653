// RUN: aicf-opt %s --plan-memory --split-input-file | filecheck %s
// RUN: aicf-opt %s --plan-memory --plan-memory --split-input-file | filecheck %s

// One arena for each role that is present; slots of a role one behind the other in the order of the text, which is the
// order of the arguments, each aligned to 256 bytes. The peak is the sum.
// CHECK-LABEL: plan.program @persistent target "cpu" peak 2560 {
// CHECK-NEXT:    plan.arena @input 512
// CHECK-NEXT:    plan.arena @param 1280
// CHECK-NEXT:    plan.arena @const 256
// CHECK-NEXT:    plan.arena @output 512
// CHECK-NEXT:    plan.slot @x in @input[0] : memref<100xf32> input "x"
// CHECK-NEXT:    plan.slot @p in @param[0] : memref<64xf32> param "p"
// CHECK-NEXT:    plan.slot @q in @param[256] : memref<65xf32> param "q"
// CHECK-NEXT:    plan.slot @r in @param[768] : memref<100xf32> param "r"
// CHECK-NEXT:    plan.slot @c0 in @const[0] : memref<f32> const 1.0
// CHECK-NEXT:    plan.slot @y in @output[0] : memref<100xf32> output "y"
// An alias is where its owner is.
// CHECK-NEXT:    plan.slot @v0 in @input[0] : memref<10x10xf32> input alias @x
plan.program @persistent target "cpu" {
  plan.slot @x : memref<100xf32> input "x"
  plan.slot @p : memref<64xf32> param "p"
  plan.slot @q : memref<65xf32> param "q"
  plan.slot @r : memref<100xf32> param "r"
  plan.slot @c0 : memref<f32> const 1.0
  plan.slot @y : memref<100xf32> output "y"
  plan.slot @v0 : memref<10x10xf32> input alias @x
  plan.launch @k0 "mul_cpu" mul x(@x) y(@c0) -> z(@y)
}

// -----

// A temporary lives from its first write to its last use, also through an alias. Two that do not live at the same time
// share memory, and then the second one waits for the readers of the first.
// CHECK-LABEL: plan.program @temporaries target "cpu" peak 1536 {
// CHECK:         plan.arena @temp 1024
// CHECK:         plan.slot @v0 in @temp[0] : memref<128xf32> temp live 0..1
// CHECK-NEXT:    plan.slot @v1 in @temp[512] : memref<128xf32> temp live 1..3
// CHECK-NEXT:    plan.slot @v2 in @temp[512] : memref<2x64xf32> temp alias @v1
// CHECK-NEXT:    plan.slot @v3 in @temp[0] : memref<64xf32> temp live 2..4
// CHECK-NEXT:    plan.slot @v4 in @temp[256] : memref<f32> temp live 3..4
// CHECK:         plan.launch @k0 "copy_cpu" copy x(@wide) -> y(@v0)
// CHECK-NEXT:    plan.launch @k1 "neg_cpu" neg x(@v0) -> y(@v1) after @k0
// CHECK-NEXT:    plan.launch @k2 "copy_cpu" copy x(@half) -> y(@v3) after @k1
// CHECK-NEXT:    plan.launch @k3 "reduce_sum_cpu" reduce_sum x(@v2) -> y(@v4) {dims = array<i64: 0, 1>} after @k1
// CHECK-NEXT:    plan.launch @k4 "add_cpu" add x(@v3) y(@v4) -> z(@y) after @k2, @k3
plan.program @temporaries target "cpu" {
  plan.slot @x : memref<f32> input "x"
  plan.slot @wide : memref<128xf32, strided<[0]>> input alias @x
  plan.slot @half : memref<64xf32, strided<[0]>> input alias @x
  plan.slot @y : memref<64xf32> output "y"
  plan.slot @v0 : memref<128xf32> temp
  plan.slot @v1 : memref<128xf32> temp
  plan.slot @v2 : memref<2x64xf32> temp alias @v1
  plan.slot @v3 : memref<64xf32> temp
  plan.slot @v4 : memref<f32> temp
  plan.launch @k0 "copy_cpu" copy x(@wide) -> y(@v0)
  plan.launch @k1 "neg_cpu" neg x(@v0) -> y(@v1) after @k0
  plan.launch @k2 "copy_cpu" copy x(@half) -> y(@v3)
  plan.launch @k3 "reduce_sum_cpu" reduce_sum x(@v2) -> y(@v4) {dims = array<i64: 0, 1>} after @k1
  plan.launch @k4 "add_cpu" add x(@v3) y(@v4) -> z(@y) after @k2, @k3
}

// -----

// A workspace is in use during its launch only.
// CHECK-LABEL: plan.program @workspace target "cpu" peak 1280 {
// CHECK:         plan.arena @temp 512
// CHECK:         plan.slot @w0 in @temp[0] : memref<300xi8> temp live 0..0
// CHECK-NEXT:    plan.slot @w1 in @temp[0] : memref<400xi8> temp live 1..1
// CHECK-NEXT:    plan.launch @k0 "relu_cpu" relu x(@x) -> y(@y) workspace @w0
// CHECK-NEXT:    plan.launch @k1 "neg_cpu" neg x(@x) -> y(@z) workspace @w1 after @k0
plan.program @workspace target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @y : memref<4xf32> output "y"
  plan.slot @z : memref<4xf32> output "z"
  plan.slot @w0 : memref<300xi8> temp
  plan.slot @w1 : memref<400xi8> temp
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@y) workspace @w0
  plan.launch @k1 "neg_cpu" neg x(@x) -> y(@z) workspace @w1
}
