// Forward products: bias and activation.
// RUN: aicf-opt %s --fuse --split-input-file | filecheck %s

// CHECK-LABEL: func.func @bias
// CHECK-NEXT:    %z = kernel.gemm_epilogue %x, %w, %b {bias = true, trans_b = true}
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<2xf32>) -> tensor<4x2xf32>
// CHECK-NEXT:    func.return %z
func.func @bias(%x: tensor<4x8xf32>, %w: tensor<2x8xf32>, %b: tensor<2xf32>) -> tensor<4x2xf32> {
  %y = kernel.gemm %x, %w {trans_b = true} : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
  %z = kernel.bias_add %y, %b : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  func.return %z : tensor<4x2xf32>
}

// -----

// The product without its bias has another use: the fused launch would lose it.
// CHECK-LABEL: func.func @product_is_used
// CHECK-NEXT:      tensor<4x2xf32>) {
// CHECK-NEXT:    %y = kernel.gemm %x, %w
// CHECK-NEXT:    %z = kernel.bias_add %y, %b
func.func @product_is_used(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>, %b: tensor<2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>) {
  %y = kernel.gemm %x, %w : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %z = kernel.bias_add %y, %b : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  func.return %y, %z : tensor<4x2xf32>, tensor<4x2xf32>
}

// -----

// Rows may be unfolded between product and bias; columns may not.
// CHECK-LABEL: func.func @bias_through_reshape
// CHECK-NEXT:      tensor<2x4xf32>) {
// CHECK-NEXT:    %[[Z:.*]] = kernel.gemm_epilogue %x, %w, %b {bias = true}
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<8x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
// CHECK-NEXT:    %{{.*}} = kernel.reshape %[[Z]] : (tensor<4x2xf32>) -> tensor<2x2x2xf32>
// CHECK-NEXT:    %u = kernel.gemm %x, %w
// CHECK-NEXT:    %v = kernel.reshape %u : (tensor<4x2xf32>) -> tensor<2x4xf32>
// CHECK-NEXT:    %t = kernel.bias_add %v, %c
func.func @bias_through_reshape(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>, %b: tensor<2xf32>, %c: tensor<4xf32>) -> (tensor<2x2x2xf32>, tensor<2x4xf32>) {
  %y = kernel.gemm %x, %w : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %r = kernel.reshape %y : (tensor<4x2xf32>) -> tensor<2x2x2xf32>
  %z = kernel.bias_add %r, %b : (tensor<2x2x2xf32>, tensor<2xf32>) -> tensor<2x2x2xf32>
  %u = kernel.gemm %x, %w : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %v = kernel.reshape %u : (tensor<4x2xf32>) -> tensor<2x4xf32>
  %t = kernel.bias_add %v, %c : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  func.return %z, %t : tensor<2x2x2xf32>, tensor<2x4xf32>
}

// -----

// CHECK-LABEL: func.func @activation
// CHECK-NEXT:    %a = kernel.gemm_epilogue %x, %w, %b {act = "relu", bias = true, trans_b = true}
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<2xf32>) -> tensor<4x2xf32>
// CHECK-NEXT:    func.return %a
func.func @activation(%x: tensor<4x8xf32>, %w: tensor<2x8xf32>, %b: tensor<2xf32>) -> tensor<4x2xf32> {
  %y = kernel.gemm %x, %w {trans_b = true} : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
  %z = kernel.bias_add %y, %b : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  %a = kernel.relu %z : tensor<4x2xf32>
  func.return %a : tensor<4x2xf32>
}

// -----

// Every activation, without a bias too, batched too.
// CHECK-LABEL: func.func @activations
// CHECK-NEXT:    kernel.gemm_epilogue %x, %x {act = "gelu"} :
// CHECK-NEXT:    kernel.gemm_epilogue %{{.*}}, %x {act = "gelu_tanh"} :
// CHECK-NEXT:    kernel.gemm_epilogue %{{.*}}, %x {act = "silu"} :
// CHECK-NEXT:    kernel.gemm_epilogue %{{.*}}, %x {act = "tanh"} :
// CHECK-NEXT:    %{{.*}} = kernel.gemm_epilogue %{{.*}}, %x {act = "sigmoid"} : tensor<2x4x4xf64>
// CHECK-NEXT:    func.return
func.func @activations(%x: tensor<2x4x4xf64>) -> tensor<2x4x4xf64> {
  %0 = kernel.gemm %x, %x : tensor<2x4x4xf64>
  %1 = kernel.gelu %0 : tensor<2x4x4xf64>
  %2 = kernel.gemm %1, %x : tensor<2x4x4xf64>
  %3 = kernel.gelu_tanh %2 : tensor<2x4x4xf64>
  %4 = kernel.gemm %3, %x : tensor<2x4x4xf64>
  %5 = kernel.silu %4 : tensor<2x4x4xf64>
  %6 = kernel.gemm %5, %x : tensor<2x4x4xf64>
  %7 = kernel.tanh %6 : tensor<2x4x4xf64>
  %8 = kernel.gemm %7, %x : tensor<2x4x4xf64>
  %9 = kernel.sigmoid %8 : tensor<2x4x4xf64>
  func.return %9 : tensor<2x4x4xf64>
}

// -----

// The value before the activation has another use, even one before the activation: it is the second result.
// CHECK-LABEL: func.func @value_before_is_used
// CHECK-NEXT:      tensor<4x2xf32>) {
// CHECK-NEXT:    %a, %z = kernel.gemm_epilogue %x, %w, %b {act = "gelu", bias = true, pre = true}
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<8x2xf32>, tensor<2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>)
// CHECK-NEXT:    %n = kernel.neg %z
// CHECK-NEXT:    %d = kernel.gelu_bwd %a, %z
// CHECK-NEXT:    func.return %n, %d
func.func @value_before_is_used(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>, %b: tensor<2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>) {
  %y = kernel.gemm %x, %w : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %z = kernel.bias_add %y, %b : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  %n = kernel.neg %z : tensor<4x2xf32>
  %a = kernel.gelu %z : tensor<4x2xf32>
  %d = kernel.gelu_bwd %a, %z : tensor<4x2xf32>
  func.return %n, %d : tensor<4x2xf32>, tensor<4x2xf32>
}

// -----

// Two activations of one value: the first is fused, the second reads what is kept.
// CHECK-LABEL: func.func @two_activations
// CHECK-NEXT:    %a, %y = kernel.gemm_epilogue %x, %w {act = "relu", pre = true}
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<8x2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>)
// CHECK-NEXT:    %b = kernel.tanh %y
// CHECK-NEXT:    func.return %a, %b
func.func @two_activations(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>) {
  %y = kernel.gemm %x, %w : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %a = kernel.relu %y : tensor<4x2xf32>
  %b = kernel.tanh %y : tensor<4x2xf32>
  func.return %a, %b : tensor<4x2xf32>, tensor<4x2xf32>
}

// -----

// An N-d layer is a 2-D product between reshapes; two such layers need none between them. The reshape of the value
// before the activation stays where that value is used.
// CHECK-LABEL: func.func @through_reshapes
// CHECK-NEXT:    %[[X:.*]] = kernel.reshape %x : (tensor<2x2x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:    %[[A:.*]] = kernel.gemm_epilogue %[[X]], %w {act = "relu"} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:    %[[B:.*]], %[[P:.*]] = kernel.gemm_epilogue %[[A]], %w {act = "silu", pre = true}
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
// CHECK-NEXT:    %[[PRE:.*]] = kernel.reshape %[[P]] : (tensor<4x8xf32>) -> tensor<2x2x8xf32>
// CHECK-NEXT:    %[[OUT:.*]] = kernel.reshape %[[B]] : (tensor<4x8xf32>) -> tensor<2x2x8xf32>
// CHECK-NEXT:    %s = kernel.add %[[PRE]], %[[OUT]]
// CHECK-NEXT:    func.return %s
func.func @through_reshapes(%x: tensor<2x2x8xf32>, %w: tensor<8x8xf32>) -> tensor<2x2x8xf32> {
  %0 = kernel.reshape %x : (tensor<2x2x8xf32>) -> tensor<4x8xf32>
  %1 = kernel.gemm %0, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %2 = kernel.reshape %1 : (tensor<4x8xf32>) -> tensor<2x2x8xf32>
  %3 = kernel.relu %2 : tensor<2x2x8xf32>
  %4 = kernel.reshape %3 : (tensor<2x2x8xf32>) -> tensor<4x8xf32>
  %5 = kernel.gemm %4, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %6 = kernel.reshape %5 : (tensor<4x8xf32>) -> tensor<2x2x8xf32>
  %7 = kernel.silu %6 : tensor<2x2x8xf32>
  %s = kernel.add %6, %7 : tensor<2x2x8xf32>
  func.return %s : tensor<2x2x8xf32>
}

// -----

// What follows something else than a product stays.
// CHECK-LABEL: func.func @no_product
// CHECK-NEXT:    %y = kernel.bias_add %x, %b
// CHECK-NEXT:    %z = kernel.relu %y
func.func @no_product(%x: tensor<4x2xf32>, %b: tensor<2xf32>) -> tensor<4x2xf32> {
  %y = kernel.bias_add %x, %b : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  %z = kernel.relu %y : tensor<4x2xf32>
  func.return %z : tensor<4x2xf32>
}
