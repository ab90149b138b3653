// The updates of all parameters as one launch.
// RUN: aicf-opt %s --fuse-optimizer --split-input-file | filecheck %s

// Two tensors of one group; the launch comes after the last gradient.
// CHECK-LABEL: func.func @one_group
// CHECK-NEXT:      tensor<4xf32>) {
// CHECK-NEXT:    %h = kernel.neg x(%g)
// CHECK-NEXT:    %p1, %q1 = kernel.sgd_step p(%p, %q) g(%g, %h) lr(%lr) weight_decay(%wd) {groups = array<i64: 0, 0>}
// CHECK-NEXT:      : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> (tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>)
func.func @one_group(%p: tensor<4xf32>, %q: tensor<4xf32>, %g: tensor<4xf32>, %lr: tensor<f64>, %wd: tensor<f64>) -> (tensor<4xf32>, tensor<4xf32>) {
  %p1 = kernel.sgd_step p(%p) g(%g) lr(%lr) weight_decay(%wd) {groups = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  %h = kernel.neg x(%g) : tensor<4xf32>
  %q1 = kernel.sgd_step p(%q) g(%h) lr(%lr) weight_decay(%wd) {groups = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  func.return %p1, %q1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// Groups are told apart by their scalars; a launch that is merged already takes part. Each tensor keeps its counter.
// CHECK-LABEL: func.func @groups
// CHECK-NEXT:      %n: tensor<4xf32>, %lr: tensor<f64>, %lr1: tensor<f64>, %mu: tensor<f64>, %s: tensor<3xf32>) -> (tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
// CHECK-NEXT:    %p1, %q1, %r1, %p2, %q2, %r2 = kernel.sgd_step p(%p, %q, %r) g(%g, %g, %g) buf(%m, %n, %m) lr(%lr, %lr1)
// CHECK-NEXT:      weight_decay(%mu, %mu) momentum(%mu, %mu) dampening(%mu, %mu) step(%s, %s)
// CHECK-NEXT:      {groups = array<i64: 0, 1, 0>, indices = array<i64: 2, 0, 1>, nesterov = true}
// CHECK-NEXT:      : (
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<f64>,
// CHECK-NEXT:      tensor<f64>,
// CHECK-NEXT:      tensor<f64>,
// CHECK-NEXT:      tensor<f64>,
// CHECK-NEXT:      tensor<f64>,
// CHECK-NEXT:      tensor<f64>,
// CHECK-NEXT:      tensor<f64>,
// CHECK-NEXT:      tensor<f64>,
// CHECK-NEXT:      tensor<3xf32>,
// CHECK-NEXT:      tensor<3xf32>
// CHECK-NEXT:    ) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
func.func @groups(%p: tensor<4xf32>, %q: tensor<4xf32>, %r: tensor<4xf32>, %g: tensor<4xf32>, %m: tensor<4xf32>, %n: tensor<4xf32>, %lr: tensor<f64>, %lr1: tensor<f64>, %mu: tensor<f64>, %s: tensor<3xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %p1, %q1, %p2, %q2 = kernel.sgd_step p(%p, %q) g(%g, %g) buf(%m, %n) lr(%lr, %lr1) weight_decay(%mu, %mu) momentum(%mu, %mu) dampening(%mu, %mu) step(%s, %s) {groups = array<i64: 0, 1>, indices = array<i64: 2, 0>, nesterov = true} : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  %r1, %r2 = kernel.sgd_step p(%r) g(%g) buf(%m) lr(%lr) weight_decay(%mu) momentum(%mu) dampening(%mu) step(%s) {groups = array<i64: 0>, indices = array<i64: 1>, nesterov = true} : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<3xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  func.return %p1, %p2, %q1, %q2, %r1, %r2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// Adam: four columns of tensors, five with amsgrad.
// CHECK-LABEL: func.func @adam
// CHECK-NEXT:      %x: tensor<4xf32>, %lr: tensor<f64>, %h: tensor<f64>, %c: tensor<2xf64>) -> (tensor<4xf32>, tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
// CHECK-NEXT:    %p1, %q1, %m1, %m2, %v1, %v2, %x1, %x2 = kernel.adam_step p(%p, %q) g(%g, %g) m(%m, %m) v(%v, %v) vmax(%x, %x)
// CHECK-NEXT:      lr(%lr) beta1(%h) beta2(%h) eps(%h) weight_decay(%h) bc1_inv(%c) bc2_inv(%c)
// CHECK-NEXT:      {groups = array<i64: 0, 0>, indices = array<i64: 1, 0>}
// CHECK-NEXT:      : (
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>,
// CHECK-NEXT:      tensor<f64>,
// CHECK-NEXT:      tensor<f64>,
// CHECK-NEXT:      tensor<f64>,
// CHECK-NEXT:      tensor<f64>,
// CHECK-NEXT:      tensor<f64>,
// CHECK-NEXT:      tensor<2xf64>,
// CHECK-NEXT:      tensor<2xf64>
// CHECK-NEXT:    ) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>)
func.func @adam(%p: tensor<4xf32>, %q: tensor<4xf32>, %g: tensor<4xf32>, %m: tensor<4xf32>, %v: tensor<4xf32>, %x: tensor<4xf32>, %lr: tensor<f64>, %h: tensor<f64>, %c: tensor<2xf64>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %p1, %m1, %v1, %x1 = kernel.adam_step p(%p) g(%g) m(%m) v(%v) vmax(%x) lr(%lr) beta1(%h) beta2(%h) eps(%h) weight_decay(%h) bc1_inv(%c) bc2_inv(%c) {groups = array<i64: 0>, indices = array<i64: 1>} : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<2xf64>, tensor<2xf64>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  %q1, %m2, %v2, %x2 = kernel.adam_step p(%q) g(%g) m(%m) v(%v) vmax(%x) lr(%lr) beta1(%h) beta2(%h) eps(%h) weight_decay(%h) bc1_inv(%c) bc2_inv(%c) {groups = array<i64: 0>, indices = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<2xf64>, tensor<2xf64>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  func.return %p1, %m1, %v1, %x1, %q1, %m2, %v2, %x2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// Other attributes and other element types are launches of their own.
// CHECK-LABEL: func.func @kinds
// CHECK-NEXT:      tensor<4xf64>) {
// CHECK-NEXT:    %0 = kernel.sgd_step p(%p) g(%p) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>}
// CHECK-NEXT:      : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
func.func @kinds(%p: tensor<4xf32>, %q: tensor<4xf64>, %lr: tensor<f64>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf64>) {
  %0 = kernel.sgd_step p(%p) g(%p) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  %1 = kernel.sgd_step p(%p) g(%p) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>, maximize = true} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  %2 = kernel.sgd_step p(%q) g(%q) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4xf64>, tensor<4xf64>, tensor<f64>, tensor<f64>) -> tensor<4xf64>
  func.return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf64>
}

// -----

// An update whose new value is read before the last one stays where it is; the others are merged.
// CHECK-LABEL: func.func @value_is_read
// CHECK-NEXT:      tensor<4xf32>) {
// CHECK-NEXT:    %0 = kernel.sgd_step p(%p) g(%p) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>}
// CHECK-NEXT:      : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
// CHECK-NEXT:    %1, %2 = kernel.sgd_step p(%q, %p) g(%q, %0) lr(%lr) weight_decay(%lr) {groups = array<i64: 0, 0>}
// CHECK-NEXT:      : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> (tensor<4xf32>,
// CHECK-NEXT:      tensor<4xf32>)
func.func @value_is_read(%p: tensor<4xf32>, %q: tensor<4xf32>, %lr: tensor<f64>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = kernel.sgd_step p(%p) g(%p) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  %1 = kernel.sgd_step p(%q) g(%q) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  %2 = kernel.sgd_step p(%p) g(%0) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  func.return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
