// Maps with one body on tensors of any sizes: one launch, of what the step updates.
// RUN: aicf-opt %s --fuse-segments --split-input-file | filecheck %s

// Three parameters of different shapes; a hyperparameter is an operand of each segment.
// CHECK-LABEL: func.func @updates
// CHECK: %p1, %q1, %s1 = kernel.multi_tensor_map x(%p, %view, %q, %view_1, %s, %lr) {body = @scaled, segments = 3}
// CHECK-NOT: kernel.map
scalar.body @scaled(%x: f32, %lr: f32) -> f32 {
  %y = arith.mulf %x, %lr : f32
  scalar.yield %y : f32
}
func.func @updates(%p: tensor<4x3xf32> {aicf.role = "param", aicf.name = "p"}, %q: tensor<5xf32> {aicf.role = "param", aicf.name = "q"}, %s: tensor<f32> {aicf.role = "param", aicf.name = "s"}, %lr: tensor<f32> {aicf.role = "host_scalar", aicf.name = "lr"})
    -> (tensor<4x3xf32> {aicf.role = "update", aicf.name = "p"}, tensor<5xf32> {aicf.role = "update", aicf.name = "q"}, tensor<f32> {aicf.role = "update", aicf.name = "s"}) {
  %a = kernel.view %lr : (tensor<f32>) -> tensor<4x3xf32, strided<[0, 0]>>
  %p1 = kernel.map x(%p, %a) {body = @scaled, shape = array<i64: 4, 3>} : (tensor<4x3xf32>, tensor<4x3xf32, strided<[0, 0]>>) -> tensor<4x3xf32>
  %b = kernel.view %lr : (tensor<f32>) -> tensor<5xf32, strided<[0]>>
  %q1 = kernel.map x(%q, %b) {body = @scaled, shape = array<i64: 5>} : (tensor<5xf32>, tensor<5xf32, strided<[0]>>) -> tensor<5xf32>
  %s1 = kernel.map x(%s, %lr) {body = @scaled, shape = array<i64>} : tensor<f32>
  func.return %p1, %q1, %s1 : tensor<4x3xf32>, tensor<5xf32>, tensor<f32>
}

// -----

// Prebuilt launches take part. Another element type, and what lies transposed, stay apart.
// CHECK-LABEL: func.func @apart
// CHECK: %p1, %q1 = kernel.multi_tensor_map x(%p, %p, %q, %q) {body = @product, segments = 2}
// CHECK: %h1 = kernel.mul x(%h) y(%h) : tensor<5xf64>
// CHECK: %u1 = kernel.map x(%across, %u) {body = @product, shape = array<i64: 3, 2>}
scalar.body @product(%x: f32, %y: f32) -> f32 {
  %z = arith.mulf %x, %y : f32
  scalar.yield %z : f32
}
func.func @apart(%p: tensor<4x3xf32> {aicf.role = "param", aicf.name = "p"}, %q: tensor<5xf32> {aicf.role = "param", aicf.name = "q"}, %h: tensor<5xf64> {aicf.role = "param", aicf.name = "h"}, %t: tensor<2x3xf32> {aicf.role = "param", aicf.name = "t"}, %u: tensor<3x2xf32> {aicf.role = "param", aicf.name = "u"})
    -> (tensor<4x3xf32> {aicf.role = "update", aicf.name = "p"}, tensor<5xf32> {aicf.role = "update", aicf.name = "q"}, tensor<5xf64> {aicf.role = "update", aicf.name = "h"}, tensor<3x2xf32> {aicf.role = "update", aicf.name = "u"}) {
  %p1 = kernel.mul x(%p) y(%p) : tensor<4x3xf32>
  %h1 = kernel.mul x(%h) y(%h) : tensor<5xf64>
  %across = kernel.view %t : (tensor<2x3xf32>) -> tensor<3x2xf32, strided<[1, 3]>>
  %u1 = kernel.map x(%across, %u) {body = @product, shape = array<i64: 3, 2>} : (tensor<3x2xf32, strided<[1, 3]>>, tensor<3x2xf32>) -> tensor<3x2xf32>
  %q1 = kernel.mul x(%q) y(%q) : tensor<5xf32>
  func.return %p1, %q1, %h1, %u1 : tensor<4x3xf32>, tensor<5xf32>, tensor<5xf64>, tensor<3x2xf32>
}

// -----

// What the loss is made of, and what a product reads, stays where it is.
// CHECK-LABEL: func.func @loss
// CHECK: %p1 = kernel.mul x(%x) y(%x)
// CHECK-NEXT: %q1 = kernel.mul x(%y) y(%y)
func.func @loss(%x: tensor<4x3xf32>, %y: tensor<5xf32>) -> (tensor<4x3xf32> {aicf.role = "loss", aicf.name = "x"}, tensor<5xf32> {aicf.role = "loss", aicf.name = "y"}) {
  %p1 = kernel.mul x(%x) y(%x) : tensor<4x3xf32>
  %q1 = kernel.mul x(%y) y(%y) : tensor<5xf32>
  func.return %p1, %q1 : tensor<4x3xf32>, tensor<5xf32>
}
// CHECK-LABEL: func.func @products
// CHECK: %p1 = kernel.mul x(%p) y(%p)
// CHECK: %q1 = kernel.mul x(%q) y(%q)
func.func @products(%p: tensor<4x3xf32> {aicf.role = "param", aicf.name = "p"}, %q: tensor<2x3xf32> {aicf.role = "param", aicf.name = "q"}, %r: tensor<4x2xf32> {aicf.role = "param", aicf.name = "r"})
    -> (tensor<4x2xf32> {aicf.role = "update", aicf.name = "r"}) {
  %p1 = kernel.mul x(%p) y(%p) : tensor<4x3xf32>
  %q1 = kernel.mul x(%q) y(%q) : tensor<2x3xf32>
  %r1 = kernel.gemm a(%p1) b(%q1) {trans_b = true} : (tensor<4x3xf32>, tensor<2x3xf32>) -> tensor<4x2xf32>
  func.return %r1 : tensor<4x2xf32>
}

// -----

// One follows from the other: they are two launches, of which the third joins the latest.
// CHECK-LABEL: func.func @behind
// CHECK: %p1 = kernel.mul x(%p) y(%p)
// CHECK: %n = kernel.advance step(%p1) -> step
// CHECK: %q1, %r1 = kernel.multi_tensor_map x(%n, %n, %r, %r) {body = @mul, segments = 2}
func.func @behind(%p: tensor<3xf32> {aicf.role = "param", aicf.name = "p"}, %r: tensor<5xf32> {aicf.role = "param", aicf.name = "r"})
    -> (tensor<3xf32> {aicf.role = "update", aicf.name = "p"}, tensor<5xf32> {aicf.role = "update", aicf.name = "r"}) {
  %p1 = kernel.mul x(%p) y(%p) : tensor<3xf32>
  %n = kernel.advance step(%p1) -> step : tensor<3xf32>
  %q1 = kernel.mul x(%n) y(%n) : tensor<3xf32>
  %r1 = kernel.mul x(%r) y(%r) : tensor<5xf32>
  func.return %q1, %r1 : tensor<3xf32>, tensor<5xf32>
}

// -----

// Norms of what is updated are one launch, of any shapes; a sum along rows, one of another type, and the loss's stay apart.
// CHECK-LABEL: func.func @norms
// CHECK: %loss = kernel.rowwise x(%r)
// CHECK: %p1, %q1 = kernel.multi_tensor_rowwise x(%p, %q) {body = @squares, segments = 2}
// CHECK: %along = kernel.rowwise x(%p)
// CHECK: %h1 = kernel.rowwise x(%h)
scalar.body @squares(%x: f32) -> f32 {
  %y = arith.mulf %x, %x : f32
  %s = scalar.sum %y : f32
  scalar.yield %s : f32
}
func.func @norms(%r: tensor<4x3xf32>, %p: tensor<4x3xf32>, %q: tensor<5xf32>, %h: tensor<5xbf16>)
    -> (tensor<f32> {aicf.role = "loss", aicf.name = "loss"}, tensor<f32> {aicf.role = "output", aicf.name = "p"}, tensor<f32> {aicf.role = "output", aicf.name = "q"}, tensor<f32> {aicf.role = "output", aicf.name = "h"}, tensor<4xf32> {aicf.role = "output", aicf.name = "along"}) {
  %loss = kernel.rowwise x(%r) {body = @squares, reduced = 2, shape = array<i64: 4, 3>} : (tensor<4x3xf32>) -> tensor<f32>
  %p1 = kernel.rowwise x(%p) {body = @squares, reduced = 2, shape = array<i64: 4, 3>} : (tensor<4x3xf32>) -> tensor<f32>
  %along = kernel.rowwise x(%p) {body = @squares, reduced = 1, shape = array<i64: 4, 3>} : (tensor<4x3xf32>) -> tensor<4xf32>
  %h1 = kernel.rowwise x(%h) {body = @squares, reduced = 1, shape = array<i64: 5>} : (tensor<5xbf16>) -> tensor<f32>
  %q1 = kernel.rowwise x(%q) {body = @squares, reduced = 1, shape = array<i64: 5>} : (tensor<5xf32>) -> tensor<f32>
  func.return %loss, %p1, %q1, %h1, %along : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<4xf32>
}

// -----

// Sums that keep their dimensions are no numbers, and stay launches of their own.
// CHECK-LABEL: func.func @kept_dimensions
// CHECK-NOT: kernel.multi_tensor_rowwise
// CHECK: func.return
func.func @kept_dimensions(%p: tensor<4x3xf32>, %q: tensor<5x1xf32>)
    -> (tensor<1x1xf32> {aicf.role = "output", aicf.name = "p"}, tensor<1x1xf32> {aicf.role = "output", aicf.name = "q"}) {
  %p1 = kernel.reduce_sum x(%p) {dims = array<i64: 0, 1>} : (tensor<4x3xf32>) -> tensor<1x1xf32>
  %q1 = kernel.reduce_sum x(%q) {dims = array<i64: 0, 1>} : (tensor<5x1xf32>) -> tensor<1x1xf32>
  func.return %p1, %q1 : tensor<1x1xf32>, tensor<1x1xf32>
}
