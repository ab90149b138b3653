// With --remarks: each pair of launches that fuse leaves apart, with the condition; and none for what it fuses.
// RUN: aicf-opt %s --fuse --remarks --split-input-file --verify-diagnostics

func.func @fused(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>, %b: tensor<2xf32>) -> tensor<4x2xf32> {
  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %z = kernel.bias_add x(%y) bias(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  %a = kernel.gelu x(%z) : tensor<4x2xf32>
  func.return %a : tensor<4x2xf32>
}

// -----

func.func @read_before(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>) -> tensor<4x2xf32> {
  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32> // expected-note {{the product}}
  // expected-note@+2 {{read by kernel.rowwise}}
  // expected-note@+1 {{makes what it reads}}
  %s = kernel.softmax x(%y) : tensor<4x2xf32>
  // expected-remark@+2 {{'kernel.reduce_sum' op is not fused with kernel.rowwise: sums of columns beside rows take}}
  // expected-note@+1 {{makes what it reads}}
  %t = kernel.reduce_sum x(%s) {dims = array<i64: 0>} : (tensor<4x2xf32>) -> tensor<2xf32>
  // expected-remark@+2 {{'kernel.bias_add' op is not fused with kernel.reduce_sum: it goes on, element by element, from what columns are reduced to}}
  // expected-remark@+1 {{'kernel.bias_add' op is not fused into kernel.gemm: another reader of the product comes before what else it reads}}
  %z = kernel.bias_add x(%y) bias(%t) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  func.return %z : tensor<4x2xf32>
}

// -----

func.func @columns_are_split(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>, %b: tensor<4xf32>) -> tensor<2x4xf32> {
  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32> // expected-note {{the product}}
  %r = kernel.reshape %y : (tensor<4x2xf32>) -> tensor<2x4xf32>
  // expected-remark@below {{not fused into kernel.gemm: in the shape of the product no strides say what it reads beside it}}
  %z = kernel.bias_add x(%r) bias(%b) : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  func.return %z : tensor<2x4xf32>
}

// -----

func.func @other_order(%x: tensor<4x8xf32>, %w: tensor<8x4xf32>) -> tensor<4x4xf32> {
  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32> // expected-note {{the product}}
  %t = kernel.view %y : (tensor<4x4xf32>) -> tensor<4x4xf32, strided<[1, 4]>>
  // expected-remark@below {{'kernel.map' op is not fused into kernel.gemm: it reads a part of the product, or in another order}}
  %z = kernel.add x(%t) y(%y) : (tensor<4x4xf32, strided<[1, 4]>>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %z : tensor<4x4xf32>
}

// -----

func.func @more_than_elements(%dy: tensor<4x2xf32>, %x: tensor<4x8xf32>) -> (tensor<2x8xf32>, tensor<2xf32>) {
  %dw = kernel.gemm a(%dy) b(%x) {trans_a = true} : (tensor<4x2xf32>, tensor<4x8xf32>) -> tensor<2x8xf32> // expected-note {{the product}}
  %db = kernel.reduce_sum x(%dy) {dims = array<i64: 0>} : (tensor<4x2xf32>) -> tensor<2xf32>
  %n = kernel.neg x(%dw) : tensor<2x8xf32> // expected-remark {{'kernel.neg' op is not fused into kernel.gemm_epilogue: it computes more than its elements}}
  func.return %n, %db : tensor<2x8xf32>, tensor<2xf32>
}

// -----

// A value that no product makes is not half of a pair.
func.func @no_product(%x: tensor<4x2xf32>, %b: tensor<2xf32>) -> (tensor<4x2xf32>, tensor<2xf32>) {
  %z = kernel.bias_add x(%x) bias(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  %a = kernel.relu x(%z) : tensor<4x2xf32>
  %s = kernel.reduce_sum x(%a) {dims = array<i64: 0>} : (tensor<4x2xf32>) -> tensor<2xf32>
  func.return %a, %s : tensor<4x2xf32>, tensor<2xf32>
}

// -----

func.func @product_on_the_other_side(%x: tensor<4x8xf32>, %dy: tensor<4x2xf32>) -> (tensor<8x2xf32>, tensor<2xf32>) {
  %dw = kernel.gemm a(%x) b(%dy) {trans_a = true} : (tensor<4x8xf32>, tensor<4x2xf32>) -> tensor<8x2xf32> // expected-note {{read by kernel.gemm as operand 1}}
  // expected-remark@below {{'kernel.reduce_sum' op is not fused into a product: no kernel.gemm reads the summed value as its left operand with trans_a}}
  %db = kernel.reduce_sum x(%dy) {dims = array<i64: 0>} : (tensor<4x2xf32>) -> tensor<2xf32>
  func.return %dw, %db : tensor<8x2xf32>, tensor<2xf32>
}

// -----

func.func @other_sums(%dy: tensor<4x4xf32>, %n: tensor<2x4x4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2x4x4xf32>, tensor<4x4xf32>) {
  %dw = kernel.gemm a(%dy) b(%dy) {trans_a = true} : tensor<4x4xf32>
  %0 = kernel.reduce_sum x(%dy) {dims = array<i64: 1>} : (tensor<4x4xf32>) -> tensor<4xf32> // expected-remark {{it sums over dims [1], a bias gradient over [0]}}
  // expected-remark@below {{it divides the sum by 2.0, a bias gradient does not}}
  %1 = kernel.reduce_sum x(%dy) {dims = array<i64: 0>, divisor = 2.0} : (tensor<4x4xf32>) -> tensor<4xf32>
  %dv = kernel.gemm a(%n) b(%n) {trans_a = true} : tensor<2x4x4xf32>
  // expected-remark@below {{it sums a value of rank 3, a bias gradient one of rank 2}}
  %2 = kernel.reduce_sum x(%n) {dims = array<i64: 0>} : (tensor<2x4x4xf32>) -> tensor<4x4xf32>
  func.return %dw, %0, %1, %dv, %2 : tensor<4x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2x4x4xf32>, tensor<4x4xf32>
}

// -----

func.func @operand_needs_the_sum(%dy: tensor<4x2xf32>, %x: tensor<4x2xf32>) -> tensor<2x2xf32> {
  // expected-note@+2 {{makes what it reads}}
  // expected-remark@+1 {{an operand of the product is made after the sum, and the sum is read before the product}}
  %db = kernel.reduce_sum x(%dy) {dims = array<i64: 0>} : (tensor<4x2xf32>) -> tensor<2xf32>
  // expected-remark@below {{'kernel.bias_add' op is not fused with kernel.reduce_sum: it goes on, element by element, from what columns are reduced to}}
  %y = kernel.bias_add x(%x) bias(%db) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  %dw = kernel.gemm a(%dy) b(%y) {trans_a = true} : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<2x2xf32> // expected-note {{the product}}
  func.return %dw : tensor<2x2xf32>
}

// -----

func.func @kinds(%p: tensor<4xf32>, %q: tensor<4xf64>, %lr: tensor<f64>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf64>) {
  %0 = kernel.sgd_step p(%p) g(%p) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  // expected-remark@below {{'kernel.sgd_step' op is not merged with kernel.sgd_step: maximize is true, there not set}}
  %1 = kernel.sgd_step p(%p) g(%p) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>, maximize = true} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  // expected-remark@below {{'kernel.sgd_step' op is not merged with kernel.sgd_step: the element type is f64, there f32}}
  %2 = kernel.sgd_step p(%q) g(%q) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4xf64>, tensor<4xf64>, tensor<f64>, tensor<f64>) -> tensor<4xf64>
  func.return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf64>
}

// -----

func.func @value_is_read(%p: tensor<4xf32>, %q: tensor<4xf32>, %lr: tensor<f64>) -> (tensor<4xf32>, tensor<4xf32>) {
  // expected-remark@below {{not merged with the other updates: a new value is read before the last of them}}
  %0 = kernel.sgd_step p(%p) g(%p) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  // expected-note@+2 {{the last update}}
  // expected-note@+1 {{read by kernel.sgd_step}}
  %1 = kernel.sgd_step p(%q) g(%0) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  func.return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

func.func @updates_behind_each_other(%p: tensor<3xf32> {aicf.role = "param", aicf.name = "p"}) -> (tensor<3xf32> {aicf.role = "update", aicf.name = "p"}) {
  %p1 = kernel.mul x(%p) y(%p) : tensor<3xf32> // expected-note {{the other}}
  %n = kernel.advance step(%p1) -> step : tensor<3xf32> // expected-note {{reads what it gives}}
  // expected-remark@+1 {{'kernel.mul' op is not one launch with another of its body: that is read too early}}
  %q1 = kernel.mul x(%n) y(%n) : tensor<3xf32>
  func.return %q1 : tensor<3xf32>
}
