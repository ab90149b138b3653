// Gradients in f16 or bf16 of f32 parameters: the optimizer's launch widens them itself, on every target.
// RUN: aicf-opt %s --fuse=target=sm_90 --split-input-file | filecheck %s
// RUN: aicf-opt %s --fuse-gradients --fuse-loops --fuse-optimizer --split-input-file | filecheck %s
// RUN: aicf-opt %s --fuse --split-input-file --remarks 2>&1 | filecheck %s --check-prefix=REMARK

// One launch for gradients of all types, of a long product or not, also behind a reshape.
// CHECK-LABEL: func.func @types
// CHECK-NOT: kernel.copy
// CHECK-NOT: kernel.map
// CHECK: %d = kernel.gemm a(%x) b(%x) {trans_a = true} : (tensor<2048x16xbf16>, tensor<2048x16xbf16>) -> tensor<16x16xbf16>
// CHECK-NEXT: %[[FLAT:.*]] = kernel.reshape %h : (tensor<4x4xf16>) -> tensor<16xf16>
// CHECK-NEXT: %p1, %q1, %r1 = kernel.sgd_step p(%p, %q, %r) g(%d, %[[FLAT]], %g) lr(%lr) weight_decay(%lr)
// CHECK-NEXT: : (tensor<16x16xf32>, tensor<16xf32>, tensor<4xf32>, tensor<16x16xbf16>, tensor<16xf16>, tensor<4xf32>,
func.func @types(%x: tensor<2048x16xbf16>, %h: tensor<4x4xf16>, %g: tensor<4xf32>, %p: tensor<16x16xf32>, %q: tensor<16xf32>, %r: tensor<4xf32>, %lr: tensor<f64>)
    -> (tensor<16x16xf32>, tensor<16xf32>, tensor<4xf32>) {
  %d = kernel.gemm a(%x) b(%x) {trans_a = true} : (tensor<2048x16xbf16>, tensor<2048x16xbf16>) -> tensor<16x16xbf16>
  %dp = kernel.copy x(%d) : (tensor<16x16xbf16>) -> tensor<16x16xf32>
  %p1 = kernel.sgd_step p(%p) g(%dp) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<16x16xf32>, tensor<16x16xf32>, tensor<f64>, tensor<f64>) -> tensor<16x16xf32>
  %wide = kernel.copy x(%h) : (tensor<4x4xf16>) -> tensor<4x4xf32>
  %dq = kernel.reshape %wide : (tensor<4x4xf32>) -> tensor<16xf32>
  %q1 = kernel.sgd_step p(%q) g(%dq) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<16xf32>, tensor<16xf32>, tensor<f64>, tensor<f64>) -> tensor<16xf32>
  %r1 = kernel.sgd_step p(%r) g(%g) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  func.return %p1, %q1, %r1 : tensor<16x16xf32>, tensor<16xf32>, tensor<4xf32>
}

// -----

// Updates share a gradient, in launches of two kinds.
// CHECK-LABEL: func.func @shared
// CHECK-NOT: kernel.copy
// CHECK: kernel.sgd_step p(%p) g(%g) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>}
// CHECK: kernel.adam_step p(%q) g(%g) m(%m) v(%v)
func.func @shared(%g: tensor<4xbf16>, %p: tensor<4xf32>, %q: tensor<4xf32>, %m: tensor<4xf32>, %v: tensor<4xf32>, %lr: tensor<f64>, %c: tensor<2xf64>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %d = kernel.copy x(%g) : (tensor<4xbf16>) -> tensor<4xf32>
  %p1 = kernel.sgd_step p(%p) g(%d) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  %q1, %m1, %v1 = kernel.adam_step p(%q) g(%d) m(%m) v(%v) lr(%lr) beta1(%lr) beta2(%lr) eps(%lr) weight_decay(%lr) bc1_inv(%c) bc2_inv(%c) {groups = array<i64: 0>, indices = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<2xf64>, tensor<2xf64>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  func.return %p1, %q1, %m1, %v1 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// What something else reads, a gradient that is returned or another launch's operand, is cast as before.
// CHECK-LABEL: func.func @read
// CHECK: %d{{.*}} = kernel.{{copy|multi_tensor_map}} x(%g
// CHECK: kernel.sgd_step p(%p, %q) g(%d, %e)
// REMARK: fuse-gradients.mlir:{{[0-9]+}}:{{.*}} 'kernel.copy' op is not left to the update: something else reads it
// REMARK: read by func.return
// REMARK: fuse-gradients.mlir:{{[0-9]+}}:{{.*}} 'kernel.copy' op is not left to the update: something else reads it
// REMARK: read by kernel.gemm
func.func @read(%g: tensor<4xbf16>, %h: tensor<2x2xbf16>, %p: tensor<4xf32>, %q: tensor<2x2xf32>, %lr: tensor<f64>)
    -> (tensor<4xf32>, tensor<2x2xf32>, tensor<4xf32>, tensor<2x2xf32>) {
  %d = kernel.copy x(%g) : (tensor<4xbf16>) -> tensor<4xf32>
  %p1 = kernel.sgd_step p(%p) g(%d) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  %e = kernel.copy x(%h) : (tensor<2x2xbf16>) -> tensor<2x2xf32>
  %y = kernel.gemm a(%e) b(%e) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %q1 = kernel.sgd_step p(%q) g(%e) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<f64>, tensor<f64>) -> tensor<2x2xf32>
  func.return %p1, %q1, %d, %y : tensor<4xf32>, tensor<2x2xf32>, tensor<4xf32>, tensor<2x2xf32>
}

// -----

// A copy that moves elements stays.
// CHECK-LABEL: func.func @moved
// CHECK: %d = kernel.copy x(%across) : (tensor<4x4xbf16, strided<[1, 4]>>) -> tensor<4x4xf32>
// CHECK: kernel.sgd_step p(%p) g(%d)
func.func @moved(%g: tensor<4x4xbf16>, %p: tensor<4x4xf32>, %lr: tensor<f64>) -> tensor<4x4xf32> {
  %across = kernel.view %g : (tensor<4x4xbf16>) -> tensor<4x4xbf16, strided<[1, 4]>>
  %d = kernel.copy x(%across) : (tensor<4x4xbf16, strided<[1, 4]>>) -> tensor<4x4xf32>
  %q = kernel.sgd_step p(%p) g(%d) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<f64>, tensor<f64>) -> tensor<4x4xf32>
  func.return %q : tensor<4x4xf32>
}

// -----

// So does one that is the parameter too.
// CHECK-LABEL: func.func @parameter
// CHECK: %d = kernel.copy x(%g) : (tensor<4x4xbf16>) -> tensor<4x4xf32>
// CHECK: kernel.sgd_step p(%d) g(%d)
func.func @parameter(%g: tensor<4x4xbf16>, %lr: tensor<f64>) -> tensor<4x4xf32> {
  %d = kernel.copy x(%g) : (tensor<4x4xbf16>) -> tensor<4x4xf32>
  %q = kernel.sgd_step p(%d) g(%d) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<f64>, tensor<f64>) -> tensor<4x4xf32>
  func.return %q : tensor<4x4xf32>
}

// -----

// Casts from and to other types stay: f32 does not hold f64, and a parameter of f64 or f16 has a gradient of its own type.
// CHECK-LABEL: func.func @from_f64
// CHECK: %d = kernel.copy x(%g) : (tensor<4x4xf64>) -> tensor<4x4xf32>
func.func @from_f64(%g: tensor<4x4xf64>, %p: tensor<4x4xf32>, %lr: tensor<f64>) -> tensor<4x4xf32> {
  %d = kernel.copy x(%g) : (tensor<4x4xf64>) -> tensor<4x4xf32>
  %q = kernel.sgd_step p(%p) g(%d) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<f64>, tensor<f64>) -> tensor<4x4xf32>
  func.return %q : tensor<4x4xf32>
}

// -----

// CHECK-LABEL: func.func @to_f64
// CHECK: %d = kernel.copy x(%g) : (tensor<4x4xbf16>) -> tensor<4x4xf64>
func.func @to_f64(%g: tensor<4x4xbf16>, %p: tensor<4x4xf64>, %lr: tensor<f64>) -> tensor<4x4xf64> {
  %d = kernel.copy x(%g) : (tensor<4x4xbf16>) -> tensor<4x4xf64>
  %q = kernel.sgd_step p(%p) g(%d) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4x4xf64>, tensor<4x4xf64>, tensor<f64>, tensor<f64>) -> tensor<4x4xf64>
  func.return %q : tensor<4x4xf64>
}

// -----

// CHECK-LABEL: func.func @to_f16
// CHECK: %d = kernel.copy x(%g) : (tensor<4x4xbf16>) -> tensor<4x4xf16>
func.func @to_f16(%g: tensor<4x4xbf16>, %p: tensor<4x4xf16>, %lr: tensor<f64>) -> tensor<4x4xf16> {
  %d = kernel.copy x(%g) : (tensor<4x4xbf16>) -> tensor<4x4xf16>
  %q = kernel.sgd_step p(%p) g(%d) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4x4xf16>, tensor<4x4xf16>, tensor<f64>, tensor<f64>) -> tensor<4x4xf16>
  func.return %q : tensor<4x4xf16>
}

// -----

// An update that is a formula takes the cast into its body, as any map does.
// CHECK-LABEL: func.func @formula
// CHECK-NOT: kernel.copy
// CHECK: %q = kernel.map x(%g, %p) {body = @copy_add, shape = array<i64: 4>}
// CHECK-NEXT: : (tensor<4xbf16>, tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: func.return %q
func.func @formula(%g: tensor<4xbf16>, %p: tensor<4xf32> {aicf.role = "param", aicf.name = "p"}) -> (tensor<4xf32> {aicf.role = "update", aicf.name = "p"}) {
  %d = kernel.copy x(%g) : (tensor<4xbf16>) -> tensor<4xf32>
  %q = kernel.add x(%p) y(%d) : tensor<4xf32>
  func.return %q : tensor<4xf32>
}
