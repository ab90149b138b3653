// A two-layer perceptron through every stage: forward only, and as a train step.
// RUN: aicf-opt --lower --fuse %examples/mlp.mlir | filecheck %s --check-prefix=FORWARD
// RUN: aicf-opt --stage lowered %examples/mlp.mlir | filecheck %s --check-prefix=LOWERED
// RUN: aicf-opt --stage fused %examples/mlp.mlir | filecheck %s --check-prefix=FUSED
// RUN: aicf-opt --stage kernel --target sm_90 %examples/mlp.mlir | filecheck %s --check-prefix=KERNEL
// RUN: aicf-opt --stage plan=target=sm_90 %examples/mlp.mlir | filecheck %s --check-prefix=PLAN

// FORWARD:      %a = kernel.gemm_epilogue a(%x) b(%w0) bias(%b0) -> out {act = "relu", trans_b = true}
// FORWARD-NEXT:        : (tensor<64x256xf32>, tensor<256x256xf32>, tensor<256xf32>) -> tensor<64x256xf32>
// FORWARD-NEXT: %y = kernel.gemm_epilogue a(%a) b(%w1) bias(%b1) -> out {trans_b = true}
// FORWARD-NEXT:        : (tensor<64x256xf32>, tensor<256x256xf32>, tensor<256xf32>) -> tensor<64x256xf32>
// FORWARD-NEXT: kernel.mse_loss y(%y) t(%t)
// FORWARD-NOT:  kernel

// One op, one launch.
// LOWERED:      kernel.gemm a(%x) b(%w0) {trans_b = true}
// LOWERED-NEXT: kernel.bias_add
// LOWERED-NEXT: kernel.relu
// LOWERED-NEXT: kernel.gemm
// LOWERED-NEXT: kernel.bias_add
// LOWERED-NEXT: kernel.mse_loss
// LOWERED:      kernel.mse_grad
// LOWERED:      kernel.relu_bwd
// LOWERED:      kernel.adam_step
// LOWERED:      kernel.adam_step

// The activation survives for the backward pass, its gradient runs in a gemm, biases get theirs from the gemm
// of the weights, and all parameters are updated by one launch.
// FUSED:      %a = kernel.gemm_epilogue a(%x) b(%w0) bias(%b0) -> out {act = "relu", trans_b = true}
// FUSED:      kernel.gemm_epilogue a({{.*}}) b(%a) -> out, bias_grad {trans_a = true}
// FUSED:      kernel.gemm_epilogue a({{.*}}) b(%w1) saved(%a) -> out {act_grad = "relu"}
// FUSED:      kernel.gemm_epilogue a({{.*}}) b(%x) -> out, bias_grad {trans_a = true}
// FUSED:      kernel.adam_step
// FUSED-NOT:  kernel.adam_step

// KERNEL:     %a = kernel.horizontal
// KERNEL-NEXT: x(%step,
// KERNEL:     members = "map(8 -> 10), gemm_map(3 -> 1, trans_b)"} id "gen_horizontal_
// KERNEL:     %y, %dy = kernel.gemm_map a(%a) b(%w1) x({{.*}}, %t) {body = @bias_add_squared_error_grad, trans_b = true} id "gen_gemm_map_
// KERNEL:     %loss, %dh, {{.*}} = kernel.horizontal
// KERNEL:     members = "rowwise(2 -> 1, reduced 2), gemm_map(3 -> 1), gemm_map(12 -> 3, trans_a)"} id "gen_horizontal_
// KERNEL:     members = "gemm_map(12 -> 3, trans_a), gemm_map(12 -> 3, trans_a), gemm_map(12 -> 3, trans_a)"} id "gen_horizontal_

// PLAN:       plan.program @mlp target "sm_90" peak [[#]] {
// PLAN:       plan.arena @param 526336
// PLAN:       plan.slot @_0.weight in @param[0] : memref<256x256xf32> param "0.weight"
// PLAN:       plan.slot @_0.bias in @param[262144] : memref<256xf32> param "0.bias"
// PLAN:       plan.slot @_2.weight in @param[263168] : memref<256x256xf32> param "2.weight"
// PLAN:       plan.slot @loss in @output[0] : memref<f32> output "loss"
// PLAN:       plan.launch @k0 "gen_horizontal_
