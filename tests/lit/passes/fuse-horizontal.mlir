// On a GPU all updates of a step whose products are small become epilogues: of a weight that of the product that makes its
// gradient, of a bias that of the sum, a product with ones. What does not depend on each other is one launch then, and the
// new weight comes after the last launch that reads the old one. An update of another gradient keeps its launch.
// RUN: aicf-opt %s --fuse=target=sm_90 | filecheck %s
// RUN: aicf-opt %s --fuse-updates=target=sm_90 --fuse-loops=target=sm_90 --fuse-optimizer --fuse-horizontal=target=sm_90 | filecheck %s
// RUN: aicf-opt %s --fuse | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s --fuse=target=sm_90 --remarks 2>&1 | filecheck %s --check-prefix=REMARK

// CHECK-LABEL: func.func @trained
// CHECK: %0 = kernel.constant {value = 1.0} : tensor<8x1xf32>
// CHECK: %dx = kernel.horizontal x(%s, %view, %dy, %w)
// CHECK-NEXT: {body = @advance_sgd_step_scalars_and_product, members = "map(2 -> 6), gemm_map(2 -> 1)"}
// CHECK: %lr{{.*}} = kernel.view %lr : (tensor<2xf32>) -> tensor<48x32xf32, strided<[0, 0], offset: 1>>
// CHECK: %p{{.*}} = kernel.reshape %b : (tensor<48xf32>) -> tensor<48x1xf32>
// CHECK: %w1, %v1, %b1, %u1 = kernel.horizontal
// CHECK: {body = @sgd_step_of_product_1, members = "gemm_map(9 -> 2, trans_a), gemm_map(9 -> 2, trans_a)"}
// CHECK: %b1_1 = kernel.reshape %b1 : (tensor<48x1xf32>) -> tensor<48xf32>
// CHECK: func.return %dx, %w1, %v1, %b1_1, %u1_1, %n
// CHECK-LABEL: func.func @kept
// CHECK: %dw = kernel.horizontal x(%s, %view, %dy, %x)
// CHECK: %w1, %v1 = kernel.sgd_step p(%w)
// CHECK: %b1, %u1 = kernel.gemm_map a(%dy) b(%0)

// CPU-NOT: gemm_map
// CPU: kernel.sgd_step p(%w, %b)

// REMARK: fuse-horizontal.mlir:{{[0-9]+}}:{{.*}} 'kernel.sgd_step' op keeps its launch: something else reads the gradient

func.func @trained(%w: tensor<48x32xf32> {aicf.role = "param", aicf.name = "w"}, %b: tensor<48xf32> {aicf.role = "param", aicf.name = "b"}, %x: tensor<8x32xf32> {aicf.role = "input", aicf.name = "x"}, %dy: tensor<8x48xf32> {aicf.role = "input", aicf.name = "dy"}, %v: tensor<48x32xf32> {aicf.role = "state", aicf.name = "v"}, %u: tensor<48xf32> {aicf.role = "state", aicf.name = "u"}, %h: tensor<f64> {aicf.role = "host_scalar", aicf.name = "h"}, %s: tensor<2xf32> {aicf.role = "state", aicf.name = "s"}) -> (tensor<8x32xf32> {aicf.role = "output", aicf.name = "dx"}, tensor<48x32xf32> {aicf.role = "update", aicf.name = "w"}, tensor<48x32xf32> {aicf.role = "update", aicf.name = "v"}, tensor<48xf32> {aicf.role = "update", aicf.name = "b"}, tensor<48xf32> {aicf.role = "update", aicf.name = "u"}, tensor<2xf32> {aicf.role = "update", aicf.name = "s"}) {
  %dw = kernel.gemm a(%dy) b(%x) {trans_a = true} : (tensor<8x48xf32>, tensor<8x32xf32>) -> tensor<48x32xf32>
  %db = kernel.reduce_sum x(%dy) {dims = array<i64: 0>} : (tensor<8x48xf32>) -> tensor<48xf32>
  %dx = kernel.gemm a(%dy) b(%w) : (tensor<8x48xf32>, tensor<48x32xf32>) -> tensor<8x32xf32>
  %n = kernel.advance step(%s) -> step : (tensor<2xf32>) -> tensor<2xf32>
  %w1, %v1 = kernel.sgd_step p(%w) g(%dw) buf(%v) lr(%h) weight_decay(%h) momentum(%h) dampening(%h) step(%n) {groups = array<i64: 0>, indices = array<i64: 1>} : (tensor<48x32xf32>, tensor<48x32xf32>, tensor<48x32xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<2xf32>) -> (tensor<48x32xf32>, tensor<48x32xf32>)
  %b1, %u1 = kernel.sgd_step p(%b) g(%db) buf(%u) lr(%h) weight_decay(%h) momentum(%h) dampening(%h) step(%n) {groups = array<i64: 0>, indices = array<i64: 0>} : (tensor<48xf32>, tensor<48xf32>, tensor<48xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<2xf32>) -> (tensor<48xf32>, tensor<48xf32>)
  func.return %dx, %w1, %v1, %b1, %u1, %n : tensor<8x32xf32>, tensor<48x32xf32>, tensor<48x32xf32>, tensor<48xf32>, tensor<48xf32>, tensor<2xf32>
}

func.func @kept(%w: tensor<48x32xf32> {aicf.role = "param", aicf.name = "w"}, %b: tensor<48xf32> {aicf.role = "param", aicf.name = "b"}, %x: tensor<8x32xf32> {aicf.role = "input", aicf.name = "x"}, %dy: tensor<8x48xf32> {aicf.role = "input", aicf.name = "dy"}, %v: tensor<48x32xf32> {aicf.role = "state", aicf.name = "v"}, %u: tensor<48xf32> {aicf.role = "state", aicf.name = "u"}, %h: tensor<f64> {aicf.role = "host_scalar", aicf.name = "h"}, %s: tensor<2xf32> {aicf.role = "state", aicf.name = "s"}) -> (tensor<48x32xf32> {aicf.role = "grad", aicf.name = "w"}, tensor<48x32xf32> {aicf.role = "update", aicf.name = "w"}, tensor<48x32xf32> {aicf.role = "update", aicf.name = "v"}, tensor<48xf32> {aicf.role = "update", aicf.name = "b"}, tensor<48xf32> {aicf.role = "update", aicf.name = "u"}, tensor<2xf32> {aicf.role = "update", aicf.name = "s"}) {
  %dw = kernel.gemm a(%dy) b(%x) {trans_a = true} : (tensor<8x48xf32>, tensor<8x32xf32>) -> tensor<48x32xf32>
  %db = kernel.reduce_sum x(%dy) {dims = array<i64: 0>} : (tensor<8x48xf32>) -> tensor<48xf32>
  %dx = kernel.gemm a(%dy) b(%w) : (tensor<8x48xf32>, tensor<48x32xf32>) -> tensor<8x32xf32>
  %n = kernel.advance step(%s) -> step : (tensor<2xf32>) -> tensor<2xf32>
  %w1, %v1 = kernel.sgd_step p(%w) g(%dw) buf(%v) lr(%h) weight_decay(%h) momentum(%h) dampening(%h) step(%n) {groups = array<i64: 0>, indices = array<i64: 1>} : (tensor<48x32xf32>, tensor<48x32xf32>, tensor<48x32xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<2xf32>) -> (tensor<48x32xf32>, tensor<48x32xf32>)
  %b1, %u1 = kernel.sgd_step p(%b) g(%db) buf(%u) lr(%h) weight_decay(%h) momentum(%h) dampening(%h) step(%n) {groups = array<i64: 0>, indices = array<i64: 0>} : (tensor<48xf32>, tensor<48xf32>, tensor<48xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<2xf32>) -> (tensor<48xf32>, tensor<48xf32>)
  func.return %dw, %w1, %v1, %b1, %u1, %n : tensor<48x32xf32>, tensor<48x32xf32>, tensor<48x32xf32>, tensor<48xf32>, tensor<48xf32>, tensor<2xf32>
}
