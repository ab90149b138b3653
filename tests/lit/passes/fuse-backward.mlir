// Gradients: of activations into the product that makes dy, of biases into the product that reads it.
// RUN: aicf-opt %s --fuse --split-input-file | filecheck %s

// CHECK-LABEL: func.func @activation_gradient
// CHECK-NEXT:    %d = kernel.gemm_epilogue a(%g) b(%w) saved(%y) -> out {act_grad = "relu"}
// CHECK-NEXT:      : (tensor<4x2xf32>, tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:    func.return %d
func.func @activation_gradient(%g: tensor<4x2xf32>, %w: tensor<2x8xf32>, %y: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %dy = kernel.gemm a(%g) b(%w) : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %d = kernel.relu_bwd dy(%dy) saved(%y) : tensor<4x8xf32>
  func.return %d : tensor<4x8xf32>
}

// -----

// CHECK-LABEL: func.func @activation_gradients
// CHECK-NEXT:    kernel.gemm_epilogue a(%x) b(%x) saved(%x) -> out {act_grad = "gelu"} :
// CHECK-NEXT:    kernel.gemm_epilogue a(%{{.*}}) b(%x) saved(%x) -> out {act_grad = "gelu_tanh"} :
// CHECK-NEXT:    kernel.gemm_epilogue a(%{{.*}}) b(%x) saved(%x) -> out {act_grad = "silu"} :
// CHECK-NEXT:    kernel.gemm_epilogue a(%{{.*}}) b(%x) saved(%x) -> out {act_grad = "tanh"} :
// CHECK-NEXT:    kernel.gemm_epilogue a(%{{.*}}) b(%x) saved(%x) -> out {act_grad = "sigmoid"} :
// CHECK-NEXT:    func.return
func.func @activation_gradients(%x: tensor<2x4x4xf64>) -> tensor<2x4x4xf64> {
  %0 = kernel.gemm a(%x) b(%x) : tensor<2x4x4xf64>
  %1 = kernel.gelu_bwd dy(%0) saved(%x) : tensor<2x4x4xf64>
  %2 = kernel.gemm a(%1) b(%x) : tensor<2x4x4xf64>
  %3 = kernel.gelu_tanh_bwd dy(%2) saved(%x) : tensor<2x4x4xf64>
  %4 = kernel.gemm a(%3) b(%x) : tensor<2x4x4xf64>
  %5 = kernel.silu_bwd dy(%4) saved(%x) : tensor<2x4x4xf64>
  %6 = kernel.gemm a(%5) b(%x) : tensor<2x4x4xf64>
  %7 = kernel.tanh_bwd dy(%6) saved(%x) : tensor<2x4x4xf64>
  %8 = kernel.gemm a(%7) b(%x) : tensor<2x4x4xf64>
  %9 = kernel.sigmoid_bwd dy(%8) saved(%x) : tensor<2x4x4xf64>
  func.return %9 : tensor<2x4x4xf64>
}

// -----

// dy has another use, or is the saved operand instead: a generated epilogue keeps it, and takes either.
// CHECK-LABEL: func.func @gradient_is_used
// CHECK-NEXT:      tensor<4x8xf32>, tensor<4x8xf32>) {
// CHECK-NEXT:    %dy, %d = kernel.gemm_map a(%g) b(%w) x(%y) {body = @relu_bwd}
// CHECK-NEXT:      : (tensor<4x2xf32>, tensor<2x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
// CHECK-NEXT:    %e = kernel.gemm_map a(%g) b(%w) x(%y) {body = @relu_bwd_1}
func.func @gradient_is_used(%g: tensor<4x2xf32>, %w: tensor<2x8xf32>, %y: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %dy = kernel.gemm a(%g) b(%w) : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %d = kernel.relu_bwd dy(%dy) saved(%y) : tensor<4x8xf32>
  %s = kernel.gemm a(%g) b(%w) : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %e = kernel.relu_bwd dy(%y) saved(%s) : tensor<4x8xf32>
  func.return %dy, %d, %e : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// Both operands of the gradient are the same product: two uses of one element.
// CHECK-LABEL: func.func @gradient_at_itself
// CHECK-NEXT:    %d = kernel.gemm_map a(%g) b(%w) {body = @silu_bwd}
func.func @gradient_at_itself(%g: tensor<4x2xf32>, %w: tensor<2x8xf32>) -> tensor<4x8xf32> {
  %dy = kernel.gemm a(%g) b(%w) : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %d = kernel.silu_bwd dy(%dy) saved(%dy) : tensor<4x8xf32>
  func.return %d : tensor<4x8xf32>
}

// -----

// The saved value is seen in the shape of the product; a reshape is made only where it has no such shape.
// CHECK-LABEL: func.func @gradient_through_reshape
// CHECK-NEXT:      %y: tensor<2x2x8xf32>, %z: tensor<4x8xf32>) -> tensor<2x2x8xf32> {
// CHECK-NEXT:    %[[SAVED:.*]] = kernel.reshape %y : (tensor<2x2x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:    %[[D:.*]] = kernel.gemm_epilogue a(%g) b(%w) saved(%[[SAVED]]) -> out {act_grad = "tanh"}
// CHECK-NEXT:      : (tensor<4x2xf32>, tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:    %[[E:.*]] = kernel.gemm_epilogue a(%[[D]]) b(%v) saved(%z) -> out {act_grad = "tanh"}
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<8x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:    %{{.*}} = kernel.reshape %[[E]] : (tensor<4x8xf32>) -> tensor<2x2x8xf32>
func.func @gradient_through_reshape(%g: tensor<4x2xf32>, %w: tensor<2x8xf32>, %v: tensor<8x8xf32>, %y: tensor<2x2x8xf32>, %z: tensor<4x8xf32>) -> tensor<2x2x8xf32> {
  %0 = kernel.gemm a(%g) b(%w) : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %1 = kernel.reshape %0 : (tensor<4x8xf32>) -> tensor<2x2x8xf32>
  %2 = kernel.tanh_bwd dy(%1) saved(%y) : tensor<2x2x8xf32>
  %3 = kernel.reshape %2 : (tensor<2x2x8xf32>) -> tensor<4x8xf32>
  %4 = kernel.gemm a(%3) b(%v) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %5 = kernel.reshape %4 : (tensor<4x8xf32>) -> tensor<2x2x8xf32>
  %6 = kernel.reshape %z : (tensor<4x8xf32>) -> tensor<2x2x8xf32>
  %7 = kernel.tanh_bwd dy(%5) saved(%6) : tensor<2x2x8xf32>
  func.return %7 : tensor<2x2x8xf32>
}

// -----

// The sum over the rows of dy is a second result of the product that reads dy transposed.
// CHECK-LABEL: func.func @bias_gradient
// CHECK-NEXT:    %dw, %db = kernel.gemm_epilogue a(%dy) b(%x) -> out, bias_grad {trans_a = true}
// CHECK-NEXT:      : (tensor<4x2xf32>, tensor<4x8xf32>) -> (tensor<2x8xf32>, tensor<2xf32>)
// CHECK-NEXT:    func.return %dw, %db
func.func @bias_gradient(%dy: tensor<4x2xf32>, %x: tensor<4x8xf32>) -> (tensor<2x8xf32>, tensor<2xf32>) {
  %dw = kernel.gemm a(%dy) b(%x) {trans_a = true} : (tensor<4x2xf32>, tensor<4x8xf32>) -> tensor<2x8xf32>
  %db = kernel.reduce_sum x(%dy) {dims = array<i64: 0>} : (tensor<4x2xf32>) -> tensor<2xf32>
  func.return %dw, %db : tensor<2x8xf32>, tensor<2xf32>
}

// -----

// The sum comes first, is used before the product, and keeps its dimension: the launch moves there.
// CHECK-LABEL: func.func @bias_gradient_first
// CHECK-NEXT:    %dw, %[[SUM:.*]] = kernel.gemm_epilogue a(%dy) b(%x) -> out, bias_grad {trans_a = true}
// CHECK-NEXT:      : (tensor<4x2xf32>, tensor<4x8xf32>) -> (tensor<2x8xf32>, tensor<2xf32>)
// CHECK-NEXT:    %db = kernel.reshape %[[SUM]] : (tensor<2xf32>) -> tensor<1x2xf32>
// CHECK-NEXT:    %u = kernel.neg x(%db)
// CHECK-NEXT:    func.return %dw, %u
func.func @bias_gradient_first(%dy: tensor<4x2xf32>, %x: tensor<4x8xf32>) -> (tensor<2x8xf32>, tensor<1x2xf32>) {
  %db = kernel.reduce_sum x(%dy) {dims = array<i64: 0>} : (tensor<4x2xf32>) -> tensor<1x2xf32>
  %u = kernel.neg x(%db) : tensor<1x2xf32>
  %dw = kernel.gemm a(%dy) b(%x) {trans_a = true} : (tensor<4x2xf32>, tensor<4x8xf32>) -> tensor<2x8xf32>
  func.return %dw, %u : tensor<2x8xf32>, tensor<1x2xf32>
}

// -----

// The other operand is defined after the sum: the launch stays at the product while nothing needs the sum earlier...
// CHECK-LABEL: func.func @operand_is_late
// CHECK-NEXT:    %y = kernel.neg x(%x)
// CHECK-NEXT:    %dw, %db = kernel.gemm_epilogue a(%dy) b(%y) -> out
func.func @operand_is_late(%dy: tensor<4x2xf32>, %x: tensor<4x8xf32>) -> (tensor<2x8xf32>, tensor<2xf32>) {
  %db = kernel.reduce_sum x(%dy) {dims = array<i64: 0>} : (tensor<4x2xf32>) -> tensor<2xf32>
  %y = kernel.neg x(%x) : tensor<4x8xf32>
  %dw = kernel.gemm a(%dy) b(%y) {trans_a = true} : (tensor<4x2xf32>, tensor<4x8xf32>) -> tensor<2x8xf32>
  func.return %dw, %db : tensor<2x8xf32>, tensor<2xf32>
}

// -----

// ...and nothing is fused when something does: here the other operand itself depends on the sum.
// CHECK-LABEL: func.func @operand_needs_the_sum
// CHECK-NEXT:    %db = kernel.reduce_sum x(%dy)
// CHECK-NEXT:    %y = kernel.bias_add x(%x) bias(%db)
// CHECK-NEXT:    %dw = kernel.gemm a(%dy) b(%y)
func.func @operand_needs_the_sum(%dy: tensor<4x2xf32>, %x: tensor<4x2xf32>) -> tensor<2x2xf32> {
  %db = kernel.reduce_sum x(%dy) {dims = array<i64: 0>} : (tensor<4x2xf32>) -> tensor<2xf32>
  %y = kernel.bias_add x(%x) bias(%db) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  %dw = kernel.gemm a(%dy) b(%y) {trans_a = true} : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<2x2xf32>
  func.return %dw : tensor<2x2xf32>
}

// -----

// Not a bias gradient: another dimension, a scale, dy not transposed, dy on the right, more than two dimensions.
// CHECK-LABEL: func.func @other_sums
// CHECK-NOT:     gemm_epilogue
// CHECK:         func.return
func.func @other_sums(%dy: tensor<4x4xf32>, %n: tensor<2x4x4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<4xf32>, tensor<2x4x4xf32>, tensor<4x4xf32>) {
  %dw = kernel.gemm a(%dy) b(%dy) {trans_b = true} : tensor<4x4xf32>
  %0 = kernel.reduce_sum x(%dy) {dims = array<i64: 0>} : (tensor<4x4xf32>) -> tensor<4xf32>
  %m = kernel.neg x(%dy) : tensor<4x4xf32>
  %dv = kernel.gemm a(%m) b(%dy) {trans_a = true} : tensor<4x4xf32>
  %1 = kernel.reduce_sum x(%m) {dims = array<i64: 1>} : (tensor<4x4xf32>) -> tensor<4xf32>
  %2 = kernel.reduce_sum x(%m) {dims = array<i64: 0>, divisor = 2.0} : (tensor<4x4xf32>) -> tensor<4xf32>
  %du = kernel.gemm a(%n) b(%n) {trans_a = true} : tensor<2x4x4xf32>
  %3 = kernel.reduce_sum x(%n) {dims = array<i64: 0>} : (tensor<2x4x4xf32>) -> tensor<4x4xf32>
  func.return %dw, %0, %1, %dv, %2, %du, %3 : tensor<4x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<4xf32>, tensor<2x4x4xf32>, tensor<4x4xf32>
}
