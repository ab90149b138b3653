// Pointwise ops and reductions over one domain become one generated launch; in it nothing is computed twice.
// RUN: aicf-opt %s --decompose --lower --fuse-activations --fuse-loops --dce --split-input-file | filecheck %s

// A residual and the layer norm behind it: one launch, which also writes the sum that a later op reads.
// CHECK-LABEL: func.func @residual_layer_norm
// CHECK-NEXT:      tensor<4x8xf32>) {
// CHECK-NEXT:    %view = kernel.view %w
// CHECK-NEXT:    %view_1 = kernel.view %b
// CHECK-NEXT:    %s, %y = kernel.rowwise x(%x, %h, %view, %view_1) {body = @add_layer_norm, reduced = 1, shape = array<i64: 4, 8>}
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32, strided<[0, 1]>>, tensor<4x8xf32, strided<[0, 1]>>)
// CHECK-NEXT:      tensor<4x8xf32>)
// CHECK-NEXT:    func.return %s, %y
func.func @residual_layer_norm(%x: tensor<4x8xf32>, %h: tensor<4x8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %s = nn.add %x, %h : tensor<4x8xf32>
  %y, %mean, %rstd = nn.layer_norm %s, %w, %b {normalized = 1}
    : (tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x1xf32>, tensor<4x1xf32>)
  func.return %s, %y : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// A chain of pointwise ops with a broadcast operand: one launch, and no copy of what is broadcast.
// CHECK-LABEL: func.func @chain
// CHECK-NEXT:    %view = kernel.view %b : (tensor<8xf32>) -> tensor<4x8xf32, strided<[0, 1]>>
// CHECK-NEXT:    %{{.*}} = kernel.map x(%x, %view) {body = @exp_mul_sin, shape = array<i64: 4, 8>}
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<4x8xf32, strided<[0, 1]>>) -> tensor<4x8xf32>
// CHECK-NEXT:    func.return
func.func @chain(%x: tensor<4x8xf32>, %b: tensor<8xf32>) -> tensor<4x8xf32> {
  %0 = nn.exp %x : tensor<4x8xf32>
  %1 = nn.mul %0, %b : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %2 = nn.sin %1 : tensor<4x8xf32>
  func.return %2 : tensor<4x8xf32>
}

// -----

// What walks another domain is a launch of its own, of the same body.
// CHECK-LABEL: func.func @two_domains
// CHECK-NEXT:    %{{.*}} = kernel.map x(%x) {body = @exp, shape = array<i64: 4, 8>} : tensor<4x8xf32>
// CHECK-NEXT:    %{{.*}} = kernel.map x(%y) {body = @exp, shape = array<i64: 5>} : tensor<5xf32>
// CHECK-NEXT:    func.return
func.func @two_domains(%x: tensor<4x8xf32>, %y: tensor<5xf32>) -> (tensor<4x8xf32>, tensor<5xf32>) {
  %0 = nn.exp %x : tensor<4x8xf32>
  %1 = nn.exp %y : tensor<5xf32>
  func.return %0, %1 : tensor<4x8xf32>, tensor<5xf32>
}

// -----

// A layer norm and its gradients: one launch each way. The backward one reads what the forward one is given, and sums
// the columns beside its rows; x minus the mean is computed again, not written.
// CHECK-LABEL: func.func @layer_norm_and_gradients
// CHECK:         %y, %mean, %rstd = kernel.rowwise x(%x, %view, %view_1) {body = @layer_norm, reduced = 1, shape = array<i64: 4, 8>}
// CHECK:         %dx, %dw, %db = kernel.rowwise x(%dy, %x, %view_2, %view_3, %view_4)
// CHECK-NEXT:      {body = @sin_layer_norm_grad_to_reduce_sum, reduced = 1, shape = array<i64: 4, 8>}
// CHECK:           -> (tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>)
// CHECK-NEXT:    func.return %y, %dx, %dw, %db
func.func @layer_norm_and_gradients(%x: tensor<4x8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>, %dy: tensor<4x8xf32>)
    -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %y, %mean, %rstd = nn.layer_norm %x, %w, %b {normalized = 1}
    : (tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x1xf32>, tensor<4x1xf32>)
  %g = nn.sin %dy : tensor<4x8xf32>
  %dx = nn.layer_norm_grad %g, %x, %mean, %rstd, %w {normalized = 1}
    : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x1xf32>, tensor<4x1xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %sub = nn.sub %x, %mean : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %mul = nn.mul %sub, %rstd : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %mul_1 = nn.mul %g, %mul : tensor<4x8xf32>
  %dw = nn.sum %mul_1 {dims = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<8xf32>
  %db = nn.sum %g {dims = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<8xf32>
  func.return %y, %dx, %dw, %db : tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>
}

// -----

// Sums of columns before rows, and of what follows a reduction: the latter are a launch of their own.
// CHECK-LABEL: func.func @columns_beside_rows
// CHECK:         %before, %[[Y:.*]] = kernel.rowwise x(%x, %w) {body = @mul_reduce_sum_softmax, reduced = 1, shape = array<i64: 4, 8>}
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<8xf32>, tensor<4x8xf32>)
// CHECK-NEXT:    %behind = kernel.reduce_sum x(%[[Y]]) {dims = array<i64: 0>}
func.func @columns_beside_rows(%x: tensor<4x8xf32>, %w: tensor<4x8xf32>)
    -> (tensor<8xf32>, tensor<4x8xf32>, tensor<8xf32>) {
  %0 = nn.mul %x, %w : tensor<4x8xf32>
  %before = nn.sum %0 {dims = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<8xf32>
  %1 = nn.softmax %x : tensor<4x8xf32>
  %2 = nn.mul %1, %w : tensor<4x8xf32>
  %behind = nn.sum %2 {dims = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<8xf32>
  func.return %before, %2, %behind : tensor<8xf32>, tensor<4x8xf32>, tensor<8xf32>
}
