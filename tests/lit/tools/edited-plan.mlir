// A kernel id changed by hand runs, or is refused with the reason; a plan for another target is refused.
// RUN: aicf-opt %examples/mlp.mlir -p lower,select-kernels,bufferize,plan-memory -o %t
// RUN: aicf-run %t --trace | filecheck %s
// RUN: sed s/gemm_cpu_blas/gemm_cpu_plain/ %t | aicf-run - --trace --compare=interp | filecheck %s --check-prefix=EDITED
// RUN: sed s/gemm_cpu_blas/gemm_f16_tc/ %t | not aicf-run - 2>&1 | filecheck %s --check-prefix=DEVICE
// RUN: sed s/gemm_cpu_blas/gemm_cpu_fast/ %t | not aicf-run - 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: sed s/relu_cpu/tanh_cpu/ %t | not aicf-run - 2>&1 | filecheck %s --check-prefix=OTHER
// RUN: aicf-opt %examples/mlp.mlir -p "lower,select-kernels{target=sm_90},bufferize,plan-memory" -o %t.sm_90
// RUN: not aicf-run %t.sm_90 --device cpu 2>&1 | filecheck %s --check-prefix=TARGET

// CHECK:      @k0 gemm_cpu_blas
// CHECK-NEXT: @k1 bias_add_cpu
// CHECK-NEXT: @k2 relu_cpu
// CHECK-NEXT: @k3 gemm_cpu_blas
// CHECK-NEXT: @k4 bias_add_cpu
// CHECK-NEXT: @k5 mse_loss_cpu

// EDITED:      @k0 gemm_cpu_plain
// EDITED:      @k3 gemm_cpu_plain
// EDITED:      loss  float32 {{.*}} ok
// EDITED-NEXT: y     float32 {{.*}} ok

// DEVICE:      <stdin>:[[#]]:5: error: 'plan.launch' op @k0: kernel 'gemm_f16_tc' cannot run gemm({{.*}}) on cpu: runs on cuda
// DEVICE-NEXT: plan.launch @k0 "gemm_f16_tc" gemm a(@x
// UNKNOWN:     error: 'plan.launch' op @k0: {{.*}}gemm_cpu_fast
// OTHER:       error: 'plan.launch' op @k2: {{.*}}tanh_cpu
// TARGET:      error: 'plan.program' op the plan is for target sm_90 and does not run on cpu: make one with aicf-opt --stage plan --target cpu
