// Narrow products of 16 bits over many rows become one launch, with all that lies between them.
// RUN: aicf-opt %s -p 'fuse{target="cpu" back-to-back-rows=32768},dce' | filecheck %s
// RUN: aicf-opt %s --fuse=target=sm_90 | filecheck %s --check-prefix=GPU
// RUN: aicf-opt %s --fuse-losses=target=sm_90 --fuse-back-to-back=target=sm_90 | filecheck %s --check-prefix=GPU
// RUN: aicf-opt %s --fuse='target="sm_90+cublaslt"' | filecheck %s --check-prefix=GPU
// RUN: aicf-opt %s --fuse=target=sm_80 | filecheck %s --check-prefix=NONE
// RUN: aicf-opt %s --fuse | filecheck %s --check-prefix=NONE
// RUN: aicf-opt %s -p 'fuse{target="sm_90" back-to-back-rows=32769}' | filecheck %s --check-prefix=NONE

// NONE-NOT: kernel.back_to_back

// A step: what the saved activation and the gradients are multiplied to is there too, so none of them is written.
// CHECK:       scalar.body @[[LOSS:squared_error.*]](%0: f32) -> f32 {
// CHECK:       scalar.body @[[BACKWARD:relu_bwd.*]](%0: f32, %1: f32) -> f32 {
// CHECK:       scalar.body @[[DIFFERENCE:bias_add_copy_to_reduce_sum]](%0: f32, %1: f32, %2: f32) -> (f32, f32) {
// CHECK:       scalar.body @[[RELU:bias_add_relu]](%0: f32, %1: f32) -> f32 {
// CHECK-LABEL: func.func @step
// CHECK:         %view = kernel.view %b0 : (tensor<32xbf16>) -> tensor<32768x32xbf16, strided<[0, 1]>>
// CHECK-NEXT:    %view_1 = kernel.view %b1 : (tensor<16xbf16>) -> tensor<32768x16xbf16, strided<[0, 1]>>
// CHECK-NEXT:    %db1, %loss, %db0, %dw1, %dw0 = kernel.back_to_back a(%x) b(%w0, %w1) x(%view, %view_1, %t)
// CHECK-NEXT:      {behind = ["y1.T y0", "y3.T a"], bodies = [@[[RELU]], @[[DIFFERENCE]], @[[BACKWARD]]],
// CHECK-NEXT:      links = ["b0.T x0 -> next bf16", "b1.T x1 x2 -> next sum bf16, sum", "b1 y0 -> sum bf16"]}
// CHECK:         %{{.*}} = kernel.rowwise x(%loss) {body = @[[LOSS]], reduced = 1, shape = array<i64: 16>}
// CHECK-NEXT:      :
// CHECK-NEXT:    func.return
// GPU-LABEL:   func.func @step
// GPU:           kernel.back_to_back a(%x) b(%w0, %w1)
func.func @step(%x: tensor<32768x16xbf16>, %w0: tensor<32x16xbf16>, %b0: tensor<32xbf16>, %w1: tensor<16x32xbf16>,
    %b1: tensor<16xbf16>, %t: tensor<32768x16xf32>)
    -> (tensor<f32>, tensor<32x16xbf16>, tensor<32xbf16>, tensor<16x32xbf16>, tensor<16xbf16>) {
  %z0 = kernel.gemm a(%x) b(%w0) {trans_b = true} : (tensor<32768x16xbf16>, tensor<32x16xbf16>) -> tensor<32768x32xbf16>
  %s0 = kernel.bias_add x(%z0) bias(%b0) : (tensor<32768x32xbf16>, tensor<32xbf16>) -> tensor<32768x32xbf16>
  %h = kernel.relu x(%s0) : tensor<32768x32xbf16>
  %z1 = kernel.gemm a(%h) b(%w1) {trans_b = true} : (tensor<32768x32xbf16>, tensor<16x32xbf16>) -> tensor<32768x16xbf16>
  %s1 = kernel.bias_add x(%z1) bias(%b1) : (tensor<32768x16xbf16>, tensor<16xbf16>) -> tensor<32768x16xbf16>
  %y = kernel.copy x(%s1) : (tensor<32768x16xbf16>) -> tensor<32768x16xf32>
  %loss = kernel.mse_loss y(%y) t(%t) {reduction = "mean"} : (tensor<32768x16xf32>, tensor<32768x16xf32>) -> tensor<f32>
  %one = kernel.constant {value = 1.0} : tensor<f32>
  %d = kernel.mse_grad dloss(%one) y(%y) t(%t) {reduction = "mean"} : (tensor<f32>, tensor<32768x16xf32>, tensor<32768x16xf32>) -> tensor<32768x16xf32>
  %dy = kernel.copy x(%d) : (tensor<32768x16xf32>) -> tensor<32768x16xbf16>
  %dw1 = kernel.gemm a(%dy) b(%h) {trans_a = true} : (tensor<32768x16xbf16>, tensor<32768x32xbf16>) -> tensor<16x32xbf16>
  %db1 = kernel.reduce_sum x(%dy) {dims = array<i64: 0>} : (tensor<32768x16xbf16>) -> tensor<16xbf16>
  %dh = kernel.gemm a(%dy) b(%w1) : (tensor<32768x16xbf16>, tensor<16x32xbf16>) -> tensor<32768x32xbf16>
  %dz = kernel.relu_bwd dy(%dh) saved(%h) : tensor<32768x32xbf16>
  %dw0 = kernel.gemm a(%dz) b(%x) {trans_a = true} : (tensor<32768x32xbf16>, tensor<32768x16xbf16>) -> tensor<32x16xbf16>
  %db0 = kernel.reduce_sum x(%dz) {dims = array<i64: 0>} : (tensor<32768x32xbf16>) -> tensor<32xbf16>
  func.return %loss, %dw0, %db0, %dw1, %db1 : tensor<f32>, tensor<32x16xbf16>, tensor<32xbf16>, tensor<16x32xbf16>, tensor<16xbf16>
}

// What nobody reads is no link.
// GPU-LABEL:   func.func @unread
// GPU:           kernel.back_to_back a(%x) b(%w0, %w1)
// GPU-NEXT:      {{.*}}links = ["b0 -> next bf16", "b1 -> write"]
func.func @unread(%x: tensor<32768x16xbf16>, %w0: tensor<16x16xbf16>, %w1: tensor<16x16xbf16>) -> tensor<32768x16xbf16> {
  %z0 = kernel.gemm a(%x) b(%w0) : (tensor<32768x16xbf16>, tensor<16x16xbf16>) -> tensor<32768x16xbf16>
  %z1 = kernel.gemm a(%z0) b(%w1) : (tensor<32768x16xbf16>, tensor<16x16xbf16>) -> tensor<32768x16xbf16>
  %z2 = kernel.gemm a(%z1) b(%w0) : (tensor<32768x16xbf16>, tensor<16x16xbf16>) -> tensor<32768x16xbf16>
  %h = kernel.relu x(%z2) : tensor<32768x16xbf16>
  func.return %z1 : tensor<32768x16xbf16>
}

// Rows of f32 are rounded where they are read; who else reads them rounded has them from here. One product over rows stays
// outside: its left operand is no value of the chain.
// CHECK-LABEL: func.func @rounded
// CHECK-NOT:     kernel.copy
// CHECK:         %z1, %a, %u = kernel.back_to_back a(%y) b(%w0, %w1)
// CHECK-NEXT:      {behind = ["a", "y0.T a"], bodies = [@product, @product], links = ["b0 -> next bf16", "b1 -> write"]}
// CHECK:         %v = kernel.gemm a(%a) b(%z1) {trans_a = true}
func.func @rounded(%x: tensor<32768x16xf32>, %w0: tensor<16x16xbf16>, %w1: tensor<16x16xbf16>)
    -> (tensor<32768x16xbf16>, tensor<16x16xbf16>, tensor<16x16xbf16>) {
  %y = kernel.neg x(%x) : tensor<32768x16xf32>
  %a = kernel.copy x(%y) : (tensor<32768x16xf32>) -> tensor<32768x16xbf16>
  %z0 = kernel.gemm a(%a) b(%w0) : (tensor<32768x16xbf16>, tensor<16x16xbf16>) -> tensor<32768x16xbf16>
  %z1 = kernel.gemm a(%z0) b(%w1) : (tensor<32768x16xbf16>, tensor<16x16xbf16>) -> tensor<32768x16xbf16>
  %u = kernel.gemm a(%z0) b(%a) {trans_a = true} : (tensor<32768x16xbf16>, tensor<32768x16xbf16>) -> tensor<16x16xbf16>
  %v = kernel.gemm a(%a) b(%z1) {trans_a = true} : (tensor<32768x16xbf16>, tensor<32768x16xbf16>) -> tensor<16x16xbf16>
  func.return %z1, %u, %v : tensor<32768x16xbf16>, tensor<16x16xbf16>, tensor<16x16xbf16>
}

// A cast of the batch that something else reads too is not made anew in each step, so it stays outside; one that nothing else reads
// does not.
// CHECK-LABEL: func.func @batch
// CHECK:         %a = kernel.copy x(%x)
// CHECK:         kernel.back_to_back a(%a) b(%w0, %w1)
// CHECK:         kernel.back_to_back a(%t) b(%w0, %w1)
func.func @batch(%x: tensor<32768x16xf32>, %t: tensor<32768x16xf32>, %w0: tensor<16x16xbf16>, %w1: tensor<16x16xbf16>)
    -> (tensor<32768x16xbf16>, tensor<16x16xbf16>, tensor<32768x16xbf16>) {
  %a = kernel.copy x(%x) : (tensor<32768x16xf32>) -> tensor<32768x16xbf16>
  %z0 = kernel.gemm a(%a) b(%w0) : (tensor<32768x16xbf16>, tensor<16x16xbf16>) -> tensor<32768x16xbf16>
  %z1 = kernel.gemm a(%z0) b(%w1) : (tensor<32768x16xbf16>, tensor<16x16xbf16>) -> tensor<32768x16xbf16>
  %v = kernel.gemm a(%a) b(%z1) {trans_a = true} : (tensor<32768x16xbf16>, tensor<32768x16xbf16>) -> tensor<16x16xbf16>
  %b = kernel.copy x(%t) : (tensor<32768x16xf32>) -> tensor<32768x16xbf16>
  %y0 = kernel.gemm a(%b) b(%w0) : (tensor<32768x16xbf16>, tensor<16x16xbf16>) -> tensor<32768x16xbf16>
  %y1 = kernel.gemm a(%y0) b(%w1) : (tensor<32768x16xbf16>, tensor<16x16xbf16>) -> tensor<32768x16xbf16>
  func.return %z1, %v, %y1 : tensor<32768x16xbf16>, tensor<16x16xbf16>, tensor<32768x16xbf16>
}

// What a link needs that is made later in the text moves up; what is divided by the rows goes on from the sums.
// CHECK-LABEL: func.func @moved
// CHECK:         %w1 = kernel.copy x(%v)
// CHECK:         %{{.*}}, %{{.*}} = kernel.back_to_back a(%x) b(%w0, %w1)
// CHECK-NEXT:      {bodies = [@product, @product], links = ["b0 -> next f16", "b1 -> write sum"]}
// CHECK:         kernel.map x(%{{.*}}) {body = @{{.*}}, shape = array<i64: 16>}
func.func @moved(%x: tensor<32768x16xf16>, %w0: tensor<16x16xf16>, %v: tensor<16x16xf32>) -> (tensor<32768x16xf16>, tensor<16xf16>) {
  %z0 = kernel.gemm a(%x) b(%w0) : (tensor<32768x16xf16>, tensor<16x16xf16>) -> tensor<32768x16xf16>
  %w1 = kernel.copy x(%v) : (tensor<16x16xf32>) -> tensor<16x16xf16>
  %z1 = kernel.gemm a(%z0) b(%w1) : (tensor<32768x16xf16>, tensor<16x16xf16>) -> tensor<32768x16xf16>
  %m = kernel.reduce_sum x(%z1) {dims = array<i64: 0>, divisor = 32768.0} : (tensor<32768x16xf16>) -> tensor<16xf16>
  func.return %z1, %m : tensor<32768x16xf16>, tensor<16xf16>
}

// A sum of columns next to their mean: both go on from the sums in f32, so a launch rounds the sum.
// CHECK-LABEL: func.func @summed_twice
// CHECK:         %z1, %[[SUMS:.*]] = kernel.back_to_back a(%x) b(%w0, %w1)
// CHECK-NEXT:      {bodies = [@product, @product], links = ["b0 -> next bf16", "b1 -> write sum"]}
// CHECK-NEXT:      -> (tensor<32768x16xbf16>, tensor<16xf32>)
// CHECK-NEXT:    %[[SUM:.*]], %[[MEAN:.*]] = kernel.map x(%[[SUMS]]) {body = @{{.*}}, shape = array<i64: 16>}
// CHECK-NEXT:      : (tensor<16xf32>) -> (tensor<16xbf16>, tensor<16xbf16>)
// CHECK:         func.return %z1, %[[SUM]], %[[MEAN]]
func.func @summed_twice(%x: tensor<32768x16xbf16>, %w0: tensor<16x16xbf16>, %w1: tensor<16x16xbf16>)
    -> (tensor<32768x16xbf16>, tensor<16xbf16>, tensor<16xbf16>) {
  %z0 = kernel.gemm a(%x) b(%w0) : (tensor<32768x16xbf16>, tensor<16x16xbf16>) -> tensor<32768x16xbf16>
  %z1 = kernel.gemm a(%z0) b(%w1) : (tensor<32768x16xbf16>, tensor<16x16xbf16>) -> tensor<32768x16xbf16>
  %s = kernel.reduce_sum x(%z1) {dims = array<i64: 0>} : (tensor<32768x16xbf16>) -> tensor<16xbf16>
  %m = kernel.reduce_sum x(%z1) {dims = array<i64: 0>, divisor = 32768.0} : (tensor<32768x16xbf16>) -> tensor<16xbf16>
  func.return %z1, %s, %m : tensor<32768x16xbf16>, tensor<16xbf16>, tensor<16xbf16>
}

// What depends on a chain by way of another launch cannot join it: here the second product would be its own weight's.
// CHECK-LABEL: func.func @around
// CHECK-NOT:     kernel.back_to_back
// CHECK:         func.return
func.func @around(%x: tensor<32768x16xbf16>, %w: tensor<16x16xbf16>) -> tensor<32768x16xbf16> {
  %z = kernel.gemm a(%x) b(%w) : (tensor<32768x16xbf16>, tensor<16x16xbf16>) -> tensor<32768x16xbf16>
  %g = kernel.gemm a(%z) b(%x) {trans_a = true} : (tensor<32768x16xbf16>, tensor<32768x16xbf16>) -> tensor<16x16xbf16>
  %y = kernel.gemm a(%z) b(%g) : (tensor<32768x16xbf16>, tensor<16x16xbf16>) -> tensor<32768x16xbf16>
  func.return %y : tensor<32768x16xbf16>
}

// Nor does f32, nor one product alone, nor what is wider, nor what is transposed on the way.
// CHECK-LABEL: func.func @others
// CHECK-NOT:     kernel.back_to_back
// CHECK:         func.return
func.func @others(%x: tensor<32768x16xf32>, %w: tensor<16x16xf32>, %a: tensor<32768x16xbf16>, %u: tensor<16x16xbf16>,
    %v: tensor<16x256xbf16>, %p: tensor<256x16xbf16>, %q: tensor<64x64xbf16>)
    -> (tensor<32768x16xf32>, tensor<32768x16xbf16>, tensor<32768x16xbf16>) {
  %0 = kernel.gemm a(%x) b(%w) : (tensor<32768x16xf32>, tensor<16x16xf32>) -> tensor<32768x16xf32>
  %1 = kernel.gemm a(%0) b(%w) : (tensor<32768x16xf32>, tensor<16x16xf32>) -> tensor<32768x16xf32>
  %2 = kernel.gemm a(%a) b(%u) : (tensor<32768x16xbf16>, tensor<16x16xbf16>) -> tensor<32768x16xbf16>
  %3 = kernel.gemm a(%a) b(%v) : (tensor<32768x16xbf16>, tensor<16x256xbf16>) -> tensor<32768x256xbf16>
  %4 = kernel.gemm a(%3) b(%p) : (tensor<32768x256xbf16>, tensor<256x16xbf16>) -> tensor<32768x16xbf16>
  func.return %1, %2, %4 : tensor<32768x16xf32>, tensor<32768x16xbf16>, tensor<32768x16xbf16>
}
