// RUN: aicf-opt %s --multi-stream --split-input-file | filecheck %s
// RUN: aicf-opt %s --multi-stream --multi-stream --split-input-file | filecheck %s
// RUN: aicf-opt %s --multi-stream --plan-memory --split-input-file | filecheck %s --check-prefix=PLANNED
// RUN: aicf-opt %s --multi-stream --plan-memory --plan-memory --split-input-file | filecheck %s --check-prefix=PLANNED
// RUN: aicf-opt %s -p "multi-stream,plan-memory{more=1.0 small=0}" --split-input-file | filecheck %s --check-prefix=TIGHT
// RUN: aicf-opt %s -p "multi-stream,plan-memory{more=1.0 small=0}" --remarks --split-input-file 2>&1 | filecheck %s --check-prefix=REMARK
// RUN: aicf-opt %s -p "multi-stream{branches=1}" --split-input-file | filecheck %s --check-prefix=ONE
// RUN: aicf-opt %s -p "multi-stream{longest=0.5}" --split-input-file | filecheck %s --check-prefix=ONE
// RUN: not aicf-opt %s --plan-memory --multi-stream --split-input-file 2>&1 | filecheck %s --check-prefix=LATE
// RUN: not aicf-opt %s -p "multi-stream{branches=17}" 2>&1 | filecheck %s --check-prefix=MANY
// RUN: not aicf-opt %s -p "plan-memory{more=0.5}" 2>&1 | filecheck %s --check-prefix=LESS

// The longest path is branch 0. The loss is beside its gradient, dW beside dX, and what waits for nothing beside the forward
// pass. dX was computed in place of the activation that dW reads too: it gets memory of its own.
// CHECK-LABEL:   plan.program @step target "sm_90" {
// CHECK:           plan.slot @relu : memref<4x8xf32> temp
// CHECK:           plan.slot @relu.1 : memref<4x8xf32> temp
// CHECK-NEXT:      plan.launch @k0 "gemm_epilogue_f32_tiled_16x16" gemm_epilogue a(@x) b(@w0) -> out(@relu)
// CHECK-NEXT:        {act = "relu", trans_b = true}
// CHECK-NEXT:      plan.launch @k1 {{.*}} a(@relu) b(@w1) -> out(@h) {trans_b = true} after @k0
// CHECK-NEXT:      plan.launch @k2 "mse_loss_f32" {{.*}} branch 1 after @k1
// CHECK-NEXT:      plan.launch @k3 "mse_grad_f32" {{.*}} {reduction = "mean"} after @k1
// CHECK-NEXT:      plan.launch @k4 {{.*}} a(@dh) b(@relu) -> out(@dw1) {trans_a = true} branch 1
// CHECK-NEXT:        after @k3{{$}}
// CHECK-NEXT:      plan.launch @k5 {{.*}} saved(@relu) -> out(@relu.1)
// CHECK-NEXT:        {act_grad = "relu"} after @k3{{$}}
// CHECK-NEXT:      plan.launch @k6 {{.*}} a(@relu.1) b(@x) -> out(@dw0) {trans_a = true}
// CHECK-NEXT:        after @k5{{$}}
// CHECK-NEXT:      plan.launch @k7 "advance_cuda" advance step(@steps) -> step(@steps) branch 2{{$}}
// CHECK-NEXT:      plan.launch @k8 {{.*}}
// CHECK-NEXT:        {groups = array<i64: 0, 0>} after @k4, @k6

// Addresses make no launch wait for another branch: dw1 may take the place of h, whose other reader is before it on branch 1.
// PLANNED-LABEL: plan.program @step target "sm_90" peak 3328 {
// PLANNED:         plan.slot @h in @temp[256] : memref<4x8xf32> temp live 1..3
// PLANNED:         plan.slot @dw1 in @temp[256] : memref<8x8xf32> temp live 4..8
// PLANNED:         plan.launch @k4 {{.*}} branch 1
// PLANNED-NEXT:      after @k2, @k3
// PLANNED-NEXT:    plan.launch @k5
// PLANNED-NEXT:      {act_grad = "relu"} after @k3{{$}}
// PLANNED-NEXT:    plan.launch @k6
// PLANNED-NEXT:      after @k5{{$}}

// With less memory dw0 takes the place of relu, which dW on the other branch reads: it is expected to have done so by then.
// TIGHT-LABEL:   plan.program @step target "sm_90" peak 3072 {
// TIGHT:           plan.slot @relu in @temp[0] : memref<4x8xf32> temp live 0..5
// TIGHT:           plan.slot @dw0 in @temp[0] : memref<8x8xf32> temp live 6..8
// TIGHT:           plan.launch @k6
// TIGHT-NEXT:        after @k4, @k5

// ONE-NOT: branch
// ONE-NOT: @relu.1
// LATE: error: 'plan.program' op branches are chosen before there are addresses; run multi-stream before plan-memory
// MANY: error: pass 'multi-stream': there are 1 to 16 branches, got 17; its options: branches: int = 4, longest: float = 5.0
// LESS: error: pass 'plan-memory': expected more >= 1 and small >= 0, got more=0.5 small=67108864; its options: more: float = 1.1, small: int = 67108864

plan.program @step target "sm_90" {
  plan.slot @x : memref<4x8xf32> input "x"
  plan.slot @t : memref<4x8xf32> input "t"
  plan.slot @w0 : memref<8x8xf32> param "w0"
  plan.slot @w1 : memref<8x8xf32> param "w1"
  plan.slot @lr : memref<f64> host_scalar "lr"
  plan.slot @steps : memref<1xf32> state "steps"
  plan.slot @loss : memref<f32> output "loss"
  plan.slot @relu : memref<4x8xf32> temp
  plan.slot @h : memref<4x8xf32> temp
  plan.slot @c0 : memref<f32> const 1.0
  plan.slot @dh : memref<4x8xf32> temp
  plan.slot @dw1 : memref<8x8xf32> temp
  plan.slot @dw0 : memref<8x8xf32> temp
  plan.launch @k0 "gemm_epilogue_f32_tiled_16x16" gemm_epilogue a(@x) b(@w0) -> out(@relu) {act = "relu", trans_b = true}
  plan.launch @k1 "gemm_epilogue_f32_tiled_16x16" gemm_epilogue a(@relu) b(@w1) -> out(@h) {trans_b = true} after @k0
  plan.launch @k2 "mse_loss_f32" mse_loss y(@h) t(@t) -> loss(@loss) {reduction = "mean"} after @k1
  plan.launch @k3 "mse_grad_f32" mse_grad dloss(@c0) y(@h) t(@t) -> dy(@dh) {reduction = "mean"} after @k1
  plan.launch @k4 "gemm_epilogue_f32_tiled_16x16" gemm_epilogue a(@dh) b(@relu) -> out(@dw1) {trans_a = true} after @k3
  plan.launch @k5 "gemm_epilogue_f32_tiled_16x16" gemm_epilogue a(@dh) b(@w1) saved(@relu) -> out(@relu) {act_grad = "relu"} after @k4
  plan.launch @k6 "gemm_epilogue_f32_tiled_16x16" gemm_epilogue a(@relu) b(@x) -> out(@dw0) {trans_a = true} after @k5
  plan.launch @k7 "advance_cuda" advance step(@steps) -> step(@steps)
  plan.launch @k8 "sgd_step_f32" sgd_step p(@w0, @w1) g(@dw0, @dw1) lr(@lr) weight_decay(@lr) -> p(@w0, @w1) {groups = array<i64: 0, 0>} after @k6
}

// -----

// Workspaces of branches are apart; where there is no memory for that, the second launch waits.
// CHECK-LABEL:   plan.program @workspaces
// CHECK:           plan.launch @k1 {{.*}} workspace @w1 branch 1{{$}}
// PLANNED-LABEL: plan.program @workspaces
// PLANNED:         plan.slot @w0 in @temp[0] : memref<300xi8> temp live 0..0
// PLANNED-NEXT:    plan.slot @w1 in @temp[512] : memref<400xi8> temp live 1..1
// PLANNED:         plan.launch @k1 {{.*}} workspace @w1 branch 1{{$}}
// TIGHT-LABEL:   plan.program @workspaces
// TIGHT:           plan.launch @k1 {{.*}} workspace @w1 branch 1 after @k0
plan.program @workspaces target "sm_90" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @y : memref<4xf32> output "y"
  plan.slot @z : memref<4xf32> output "z"
  plan.slot @w0 : memref<300xi8> temp
  plan.slot @w1 : memref<400xi8> temp
  plan.launch @k0 "relu_f32_vec4" relu x(@x) -> y(@y) workspace @w0
  plan.launch @k1 "neg_f32_vec4" neg x(@x) -> y(@z) workspace @w1
}

// -----

// The CPU runs launches one after another.
// CHECK-LABEL:   plan.program @host target "cpu" {
// CHECK-NOT:       branch
// REMARK:        remark: 'plan.program' op branches wait for memory: to run beside each other they need 1792 bytes, and the limit is 1280; one behind the other 1280 do
plan.program @host target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @y : memref<4xf32> output "y"
  plan.slot @z : memref<4xf32> output "z"
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@y)
  plan.launch @k1 "neg_cpu" neg x(@x) -> y(@z)
}
