// A classifier with cross-entropy and AdamW, planned for two targets; the text is the same in every process.
// RUN: aicf-opt --stage step %examples/train_step.mlir | filecheck %s --check-prefix=STEP
// RUN: aicf-opt --stage plan --target cpu %examples/train_step.mlir | filecheck %s --check-prefix=CPU
// RUN: aicf-opt --stage plan --target sm_90 %examples/train_step.mlir | filecheck %s --check-prefix=CUDA
// RUN: env PYTHONHASHSEED=1 aicf-opt --stage plan %examples/train_step.mlir -o %t.1
// RUN: env PYTHONHASHSEED=2 aicf-opt --stage plan %examples/train_step.mlir -o %t.2
// RUN: diff %t.1 %t.2
// RUN: aicf-opt %t.1 --print-op-generic | aicf-opt - -o %t.3
// RUN: diff %t.1 %t.3
// RUN: aicf-run %t.1 --compare=interp --steps 3 | filecheck %s --check-prefix=AGREE

// STEP:      nn.cross_entropy %y, %t
// STEP:      nn.cross_entropy_grad
// STEP:      %dw0 = nn.matmul {{.*}}, %x {trans_a = true}
// STEP:      %step.next, %bc1_inv.next, %bc2_inv.next = optim.advance %step,
// STEP-NEXT:        : (tensor<4xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) -> (tensor<4xf32>, tensor<4xf64>,
// STEP-NEXT:        tensor<4xf64>)
// STEP-NEXT: %w0.next, %w0.exp_avg.next, %w0.exp_avg_sq.next = optim.adam
// STEP-NEXT:   %w0, %dw0, {{.*}}
// STEP-NEXT:   {index = 0, decoupled = true}

// CPU:  plan.program @train_step target "cpu" peak [[#]] {
// CPU:  plan.launch @k0 "gemm_epilogue_cpu_blas" gemm_epilogue a(@x) b(@_0.weight) bias(@_0.bias)
// CUDA: plan.program @train_step target "sm_90" peak [[#]] {
// CUDA: plan.launch @k0 "gen_horizontal_
// CUDA: members = "map(8 -> 10), gemm_map(3 -> 2, trans_b), rowwise(1 -> 1, reduced 1)", ahead = array<i64: 8>}
// CUDA: rowwise x(@y, {{.*}}) -> y(@row_losses, @y)
// CUDA: plan.launch @k3 "gen_gemm_map_
// CUDA-NEXT: {body = @gelu_bwd, ahead = array<i64: 1, 2>} after @k2
// CUDA: plan.launch @k4 "gen_horizontal_
// CUDA: members = "rowwise(2 -> 1, reduced 1), gemm_map(12 -> 3, trans_a), gemm_map(12 -> 3, trans_a), gemm_map(12 -> 3, trans_a), gemm_map(12 -> 3, trans_a)",
// CUDA-NEXT: ahead = array<i64: 3, 4, {{.*}}

// AGREE:     name                 dtype    difference  allowed  verdict
// AGREE:     loss {{.*}} ok
// AGREE:     0.weight {{.*}} ok
// AGREE:     step {{.*}} ok
// AGREE-NOT: DIFFERS
