// The update of a large weight is the epilogue of the product that makes its gradient, on the CPU; it stands behind
// the last launch that reads the old weight.
// RUN: aicf-opt %s --fuse-updates | filecheck %s
// RUN: aicf-opt %s --fuse-updates=target=sm_90 | filecheck %s --check-prefix=CUDA
// RUN: aicf-opt %s --fuse-updates --remarks 2>&1 | filecheck %s --check-prefix=REMARK

// CHECK-LABEL: func.func @trained
// CHECK: %n, %c1, %c2 = kernel.advance step(%s)
// CHECK: %bc2_inv_sqrt = kernel.map
// CHECK-NEXT: %c1, %c2) {body = @adam_step_scalars, shape = array<i64: 3>}
// CHECK: %dx = kernel.gemm a(%dy) b(%w)
// CHECK: %step_size_1 = kernel.view %step_size : (tensor<3xf32>) -> tensor<512x256xf32, strided<[0, 0], offset: 1>>
// CHECK: %w1, %m1, %v1 = kernel.gemm_map a(%dy) b(%x)
// CHECK-NEXT: x(%w, %m, %v, %decay_1,
// CHECK-NEXT: {allow_tf32 = true, body = @adam_step_of_product, trans_a = true}
// CHECK-NOT: kernel.adam_step
// CHECK-LABEL: func.func @returned
// CHECK-NOT: gemm_map
// CHECK: kernel.adam_step

// CUDA-NOT: gemm_map
// CUDA: kernel.adam_step

// REMARK: fuse-updates.mlir:{{[0-9]+}}:{{.*}} 'kernel.adam_step' op is not fused into the product of its gradient: something else reads the gradient

func.func @trained(%w: tensor<512x256xf32>, %x: tensor<8x256xf32>, %dy: tensor<8x512xf32>, %m: tensor<512x256xf32>, %v: tensor<512x256xf32>, %h: tensor<f64>, %s: tensor<3xf32>) -> (tensor<512x256xf32>, tensor<512x256xf32>, tensor<512x256xf32>, tensor<3xf32>, tensor<3xf64>, tensor<3xf64>, tensor<8x256xf32>) {
  %dw = kernel.gemm a(%dy) b(%x) {allow_tf32 = true, trans_a = true} : (tensor<8x512xf32>, tensor<8x256xf32>) -> tensor<512x256xf32>
  %dx = kernel.gemm a(%dy) b(%w) : (tensor<8x512xf32>, tensor<512x256xf32>) -> tensor<8x256xf32>
  %n, %c1, %c2 = kernel.advance step(%s) beta1(%h) beta2(%h) bc1_pin(%h) bc2_pin(%h) -> step, bc1_inv, bc2_inv : (tensor<3xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) -> (tensor<3xf32>, tensor<3xf64>, tensor<3xf64>)
  %w1, %m1, %v1 = kernel.adam_step p(%w) g(%dw) m(%m) v(%v) lr(%h) beta1(%h) beta2(%h) eps(%h) weight_decay(%h) bc1_inv(%c1) bc2_inv(%c2) {groups = array<i64: 0>, indices = array<i64: 1>} : (tensor<512x256xf32>, tensor<512x256xf32>, tensor<512x256xf32>, tensor<512x256xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<512x256xf32>, tensor<512x256xf32>, tensor<512x256xf32>)
  func.return %w1, %m1, %v1, %n, %c1, %c2, %dx : tensor<512x256xf32>, tensor<512x256xf32>, tensor<512x256xf32>, tensor<3xf32>, tensor<3xf64>, tensor<3xf64>, tensor<8x256xf32>
}

func.func @returned(%w: tensor<512x256xf32>, %x: tensor<8x256xf32>, %dy: tensor<8x512xf32>, %m: tensor<512x256xf32>, %v: tensor<512x256xf32>, %h: tensor<f64>, %s: tensor<3xf32>) -> (tensor<512x256xf32>, tensor<512x256xf32>, tensor<512x256xf32>, tensor<3xf32>, tensor<512x256xf32>) {
  %dw = kernel.gemm a(%dy) b(%x) {trans_a = true} : (tensor<8x512xf32>, tensor<8x256xf32>) -> tensor<512x256xf32>
  %n, %c1, %c2 = kernel.advance step(%s) beta1(%h) beta2(%h) bc1_pin(%h) bc2_pin(%h) -> step, bc1_inv, bc2_inv : (tensor<3xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) -> (tensor<3xf32>, tensor<3xf64>, tensor<3xf64>)
  %w1, %m1, %v1 = kernel.adam_step p(%w) g(%dw) m(%m) v(%v) lr(%h) beta1(%h) beta2(%h) eps(%h) weight_decay(%h) bc1_inv(%c1) bc2_inv(%c2) {groups = array<i64: 0>, indices = array<i64: 1>} : (tensor<512x256xf32>, tensor<512x256xf32>, tensor<512x256xf32>, tensor<512x256xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<512x256xf32>, tensor<512x256xf32>, tensor<512x256xf32>)
  func.return %w1, %m1, %v1, %n, %dw : tensor<512x256xf32>, tensor<512x256xf32>, tensor<512x256xf32>, tensor<3xf32>, tensor<512x256xf32>
}
