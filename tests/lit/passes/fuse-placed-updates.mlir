// On a CPU a product whose epilogue is an update comes right behind the last reader of the old weight.
// RUN: aicf-opt %s --fuse-placed-updates | filecheck %s
// RUN: aicf-opt %s --fuse-placed-updates=target=sm_90 | filecheck %s --check-prefix=GPU

scalar.body @step(%0: f32, %1: f32) -> f32 {
  %2 = arith.subf %1, %0 : f32
  scalar.yield %2 : f32
}

// CHECK-LABEL: func.func @early
// CHECK:  %dx = kernel.gemm a(%dy) b(%w) : (tensor<2x8xf32>, tensor<8x4xf32>) -> tensor<2x4xf32>
// CHECK:  %w1 = kernel.gemm_map a(%dy) b(%x) x(%w) {body = @step, trans_a = true}
// CHECK:  : (tensor<2x8xf32>, tensor<2x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
// CHECK:  %a = kernel.silu x(%dx) : tensor<2x4xf32>
// CHECK:  func.return %dx, %a, %w1 : tensor<2x4xf32>, tensor<2x4xf32>, tensor<8x4xf32>
// GPU-LABEL: func.func @early
// GPU:    %dx = kernel.gemm a(%dy) b(%w) : (tensor<2x8xf32>, tensor<8x4xf32>) -> tensor<2x4xf32>
// GPU:    %a = kernel.silu x(%dx) : tensor<2x4xf32>
// GPU:    %w1 = kernel.gemm_map a(%dy) b(%x) x(%w) {body = @step, trans_a = true}
// GPU:    : (tensor<2x8xf32>, tensor<2x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
// GPU:    func.return %dx, %a, %w1 : tensor<2x4xf32>, tensor<2x4xf32>, tensor<8x4xf32>
func.func @early(%w: tensor<8x4xf32> {aicf.role = "param", aicf.name = "w"}, %x: tensor<2x4xf32>, %dy: tensor<2x8xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<8x4xf32> {aicf.role = "update", aicf.name = "w"}) {
  %dx = kernel.gemm a(%dy) b(%w) : (tensor<2x8xf32>, tensor<8x4xf32>) -> tensor<2x4xf32>
  %a = kernel.silu x(%dx) : tensor<2x4xf32>
  %w1 = kernel.gemm_map a(%dy) b(%x) x(%w) {body = @step, trans_a = true} : (tensor<2x8xf32>, tensor<2x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  func.return %dx, %a, %w1 : tensor<2x4xf32>, tensor<2x4xf32>, tensor<8x4xf32>
}
