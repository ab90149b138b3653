// Forward products: bias and activation.
// RUN: aicf-opt %s --fuse --split-input-file | filecheck %s

// CHECK-LABEL: func.func @bias
// CHECK-NEXT:    %z = kernel.gemm_epilogue a(%x) b(%w) bias(%b) -> out {trans_b = true}
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<2xf32>) -> tensor<4x2xf32>
// CHECK-NEXT:    func.return %z
func.func @bias(%x: tensor<4x8xf32>, %w: tensor<2x8xf32>, %b: tensor<2xf32>) -> tensor<4x2xf32> {
  %y = kernel.gemm a(%x) b(%w) {trans_b = true} : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
  %z = kernel.bias_add x(%y) bias(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  func.return %z : tensor<4x2xf32>
}

// -----

// The product without its bias has another use, which the prebuilt epilogue would lose: a generated one has it as a result.
// CHECK-LABEL: scalar.body @bias_add(%0: f32, %1: f32) -> (f32, f32) {
// CHECK-NEXT:    %2 = arith.addf %0, %1 : f32
// CHECK-NEXT:    scalar.yield %0, %2 : f32, f32
// CHECK:       func.func @product_is_used
// CHECK:         %view = kernel.view %b : (tensor<2xf32>) -> tensor<4x2xf32, strided<[0, 1]>>
// CHECK-NEXT:    %y, %z = kernel.gemm_map a(%x) b(%w) x(%view) {body = @bias_add}
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<8x2xf32>, tensor<4x2xf32, strided<[0, 1]>>) -> (tensor<4x2xf32>, tensor<4x2xf32>)
// CHECK-NEXT:    func.return %y, %z
func.func @product_is_used(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>, %b: tensor<2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>) {
  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %z = kernel.bias_add x(%y) bias(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  func.return %y, %z : tensor<4x2xf32>, tensor<4x2xf32>
}

// -----

// Rows may be unfolded between product and bias; columns may not.
// CHECK-LABEL: func.func @bias_through_reshape
// CHECK-NEXT:      tensor<2x4xf32>) {
// CHECK-NEXT:    %[[Z:.*]] = kernel.gemm_epilogue a(%x) b(%w) bias(%b) -> out
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<8x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
// CHECK-NEXT:    %{{.*}} = kernel.reshape %[[Z]] : (tensor<4x2xf32>) -> tensor<2x2x2xf32>
// CHECK-NEXT:    %u = kernel.gemm a(%x) b(%w)
// CHECK-NEXT:    %v = kernel.reshape %u : (tensor<4x2xf32>) -> tensor<2x4xf32>
// CHECK-NEXT:    %t = kernel.bias_add x(%v) bias(%c)
func.func @bias_through_reshape(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>, %b: tensor<2xf32>, %c: tensor<4xf32>) -> (tensor<2x2x2xf32>, tensor<2x4xf32>) {
  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %r = kernel.reshape %y : (tensor<4x2xf32>) -> tensor<2x2x2xf32>
  %z = kernel.bias_add x(%r) bias(%b) : (tensor<2x2x2xf32>, tensor<2xf32>) -> tensor<2x2x2xf32>
  %u = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %v = kernel.reshape %u : (tensor<4x2xf32>) -> tensor<2x4xf32>
  %t = kernel.bias_add x(%v) bias(%c) : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  func.return %z, %t : tensor<2x2x2xf32>, tensor<2x4xf32>
}

// -----

// CHECK-LABEL: func.func @activation
// CHECK-NEXT:    %a = kernel.gemm_epilogue a(%x) b(%w) bias(%b) -> out {act = "relu", trans_b = true}
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<2xf32>) -> tensor<4x2xf32>
// CHECK-NEXT:    func.return %a
func.func @activation(%x: tensor<4x8xf32>, %w: tensor<2x8xf32>, %b: tensor<2xf32>) -> tensor<4x2xf32> {
  %y = kernel.gemm a(%x) b(%w) {trans_b = true} : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
  %z = kernel.bias_add x(%y) bias(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  %a = kernel.relu x(%z) : tensor<4x2xf32>
  func.return %a : tensor<4x2xf32>
}

// -----

// Every activation, without a bias too, batched too.
// CHECK-LABEL: func.func @activations
// CHECK-NEXT:    kernel.gemm_epilogue a(%x) b(%x) -> out {act = "gelu"} :
// CHECK-NEXT:    kernel.gemm_epilogue a(%{{.*}}) b(%x) -> out {act = "gelu_tanh"} :
// CHECK-NEXT:    kernel.gemm_epilogue a(%{{.*}}) b(%x) -> out {act = "silu"} :
// CHECK-NEXT:    kernel.gemm_epilogue a(%{{.*}}) b(%x) -> out {act = "tanh"} :
// CHECK-NEXT:    %{{.*}} = kernel.gemm_epilogue a(%{{.*}}) b(%x) -> out {act = "sigmoid"} : tensor<2x4x4xf64>
// CHECK-NEXT:    func.return
func.func @activations(%x: tensor<2x4x4xf64>) -> tensor<2x4x4xf64> {
  %0 = kernel.gemm a(%x) b(%x) : tensor<2x4x4xf64>
  %1 = kernel.gelu x(%0) : tensor<2x4x4xf64>
  %2 = kernel.gemm a(%1) b(%x) : tensor<2x4x4xf64>
  %3 = kernel.gelu_tanh x(%2) : tensor<2x4x4xf64>
  %4 = kernel.gemm a(%3) b(%x) : tensor<2x4x4xf64>
  %5 = kernel.silu x(%4) : tensor<2x4x4xf64>
  %6 = kernel.gemm a(%5) b(%x) : tensor<2x4x4xf64>
  %7 = kernel.tanh x(%6) : tensor<2x4x4xf64>
  %8 = kernel.gemm a(%7) b(%x) : tensor<2x4x4xf64>
  %9 = kernel.sigmoid x(%8) : tensor<2x4x4xf64>
  func.return %9 : tensor<2x4x4xf64>
}

// -----

// The value before the activation is returned, even before the activation: it is the second result.
// CHECK-LABEL: func.func @value_before_is_used
// CHECK-NEXT:      tensor<4x2xf32>) {
// CHECK-NEXT:    %a, %z = kernel.gemm_epilogue a(%x) b(%w) bias(%b) -> out, pre {act = "gelu"}
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<8x2xf32>, tensor<2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>)
// CHECK-NEXT:    func.return %z, %a
func.func @value_before_is_used(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>, %b: tensor<2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>) {
  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %z = kernel.bias_add x(%y) bias(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  %a = kernel.gelu x(%z) : tensor<4x2xf32>
  func.return %z, %a : tensor<4x2xf32>, tensor<4x2xf32>
}

// -----

// All that follows element by element is one epilogue; what is computed once is read twice.
// CHECK:       %{{.*}} = math.exp
// CHECK-NOT:   math.exp
// CHECK-LABEL: func.func @all_of_it
// CHECK:         %n, %d = kernel.gemm_map a(%x) b(%w) x(%view) {body = @bias_gelu_neg_gelu_bwd}
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<8x2xf32>, tensor<4x2xf32, strided<[0, 1]>>) -> (tensor<4x2xf32>, tensor<4x2xf32>)
// CHECK-NEXT:    func.return %n, %d
func.func @all_of_it(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>, %b: tensor<2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>) {
  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %z = kernel.bias_add x(%y) bias(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  %n = kernel.neg x(%z) : tensor<4x2xf32>
  %a = kernel.gelu x(%z) : tensor<4x2xf32>
  %d = kernel.gelu_bwd dy(%a) saved(%z) : tensor<4x2xf32>
  func.return %n, %d : tensor<4x2xf32>, tensor<4x2xf32>
}

// -----

// Two activations of one value: both are fused, and the value itself is never written.
// CHECK-LABEL: func.func @two_activations
// CHECK-NEXT:    %a, %b = kernel.gemm_map a(%x) b(%w) {body = @relu_tanh}
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<8x2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>)
// CHECK-NEXT:    func.return %a, %b
func.func @two_activations(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>) {
  %y = kernel.gemm a(%x) b(%w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %a = kernel.relu x(%y) : tensor<4x2xf32>
  %b = kernel.tanh x(%y) : tensor<4x2xf32>
  func.return %a, %b : tensor<4x2xf32>, tensor<4x2xf32>
}

// -----

// An N-d layer is a 2-D product between reshapes; two such layers need none between them.
// CHECK-LABEL: func.func @through_reshapes
// CHECK-NEXT:    %[[X:.*]] = kernel.reshape %x : (tensor<2x2x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:    %[[A:.*]] = kernel.gemm_epilogue a(%[[X]]) b(%w) -> out {act = "relu"} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:    %[[S:.*]] = kernel.gemm_map a(%[[A]]) b(%w) {body = @silu_add} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:    %[[OUT:.*]] = kernel.reshape %[[S]] : (tensor<4x8xf32>) -> tensor<2x2x8xf32>
// CHECK-NEXT:    func.return %[[OUT]]
func.func @through_reshapes(%x: tensor<2x2x8xf32>, %w: tensor<8x8xf32>) -> tensor<2x2x8xf32> {
  %0 = kernel.reshape %x : (tensor<2x2x8xf32>) -> tensor<4x8xf32>
  %1 = kernel.gemm a(%0) b(%w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %2 = kernel.reshape %1 : (tensor<4x8xf32>) -> tensor<2x2x8xf32>
  %3 = kernel.relu x(%2) : tensor<2x2x8xf32>
  %4 = kernel.reshape %3 : (tensor<2x2x8xf32>) -> tensor<4x8xf32>
  %5 = kernel.gemm a(%4) b(%w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %6 = kernel.reshape %5 : (tensor<4x8xf32>) -> tensor<2x2x8xf32>
  %7 = kernel.silu x(%6) : tensor<2x2x8xf32>
  %s = kernel.add x(%6) y(%7) : tensor<2x2x8xf32>
  func.return %s : tensor<2x2x8xf32>
}

// -----

// What follows something else than a product becomes one generated launch; a bias is seen by every row.
// CHECK-LABEL: scalar.body @bias_add_relu(%0: f32, %1: f32) -> f32 {
// CHECK-NEXT:    %2 = arith.addf %0, %1 : f32
// CHECK-NEXT:    %3 = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:    %4 = arith.maximumf %2, %3 : f32
// CHECK-NEXT:    scalar.yield %4 : f32
// CHECK:       func.func @no_product
// CHECK-NEXT:    %view = kernel.view %b : (tensor<2xf32>) -> tensor<4x2xf32, strided<[0, 1]>>
// CHECK-NEXT:    %z = kernel.map x(%x, %view) {body = @bias_add_relu, shape = array<i64: 4, 2>}
func.func @no_product(%x: tensor<4x2xf32>, %b: tensor<2xf32>) -> tensor<4x2xf32> {
  %y = kernel.bias_add x(%x) bias(%b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  %z = kernel.relu x(%y) : tensor<4x2xf32>
  func.return %z : tensor<4x2xf32>
}
