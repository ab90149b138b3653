// The ops of the train dialect, and their text.
// RUN: aicf-opt %s | aicf-opt | filecheck %s

// CHECK-LABEL: func.func @body
// CHECK:         %dw, %db = train.backward %loss, %w, %b : (tensor<f32>, tensor<4xf32>, tensor<f32>) -> (tensor<4xf32>, tensor<f32>)
// CHECK-NEXT:    %w1, %b1 = train.update %w, %b, %dw, %db {names = ["w", "b"]}
// CHECK-NEXT:      : (tensor<4xf32>, tensor<f32>, tensor<4xf32>, tensor<f32>) -> (tensor<4xf32>, tensor<f32>)
func.func @body(%loss: tensor<f32>, %w: tensor<4xf32>, %b: tensor<f32>) -> (tensor<4xf32>, tensor<f32>) {
  %dw, %db = train.backward %loss, %w, %b : (tensor<f32>, tensor<4xf32>, tensor<f32>) -> (tensor<4xf32>, tensor<f32>)
  %w1, %b1 = train.update %w, %b, %dw, %db {names = ["w", "b"]}
    : (tensor<4xf32>, tensor<f32>, tensor<4xf32>, tensor<f32>) -> (tensor<4xf32>, tensor<f32>)
  func.return %w1, %b1 : tensor<4xf32>, tensor<f32>
}

// A gradient that a step computes with, and a value with respect to which it is taken.
// CHECK-LABEL: func.func @inside
// CHECK:         %leaf = train.input %x : tensor<4xf32>
// CHECK-NEXT:    %dw, %dx = train.gradient of(%y) seeds(%seed) wrt(%w, %leaf) {create_graph = true}
// CHECK:         %dx1 = train.gradient of(%y) seeds(%seed) wrt(%leaf)
// CHECK-NEXT:      : (tensor<2xf32>, tensor<2xf32>, tensor<4xf32>) -> tensor<4xf32>
func.func @inside(%y: tensor<2xf32>, %seed: tensor<2xf32>, %w: tensor<f32>, %x: tensor<4xf32>) -> (tensor<f32>, tensor<4xf32>, tensor<4xf32>) {
  %leaf = train.input %x : tensor<4xf32>
  %dw, %dx = train.gradient of(%y) seeds(%seed) wrt(%w, %leaf) {create_graph = true}
    : (tensor<2xf32>, tensor<2xf32>, tensor<f32>, tensor<4xf32>) -> (tensor<f32>, tensor<4xf32>)
  %dx1 = train.gradient of(%y) seeds(%seed) wrt(%leaf) : (tensor<2xf32>, tensor<2xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %dw, %dx, %dx1 : tensor<f32>, tensor<4xf32>, tensor<4xf32>
}

// The end of a region that gives gradients.
// CHECK-LABEL: func.func @straight
// CHECK:           train.yield %dx : (tensor<4xf32>) -> ()
func.func @straight(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = nn.custom_gradient of(%x) wrt(%x) : tensor<4xf32> {
  ^bb0(%dx: tensor<4xf32>):
    train.yield %dx : (tensor<4xf32>) -> ()
  }
  func.return %y : tensor<4xf32>
}

// A step that may be left out.
// CHECK-LABEL: func.func @maybe
// CHECK:         %w1 = train.update %w, %dw, %taken {names = ["w"]} : (tensor<4xf32>, tensor<4xf32>, tensor<i1>) -> tensor<4xf32>
func.func @maybe(%w: tensor<4xf32>, %dw: tensor<4xf32>, %taken: tensor<i1>) -> tensor<4xf32> {
  %w1 = train.update %w, %dw, %taken {names = ["w"]} : (tensor<4xf32>, tensor<4xf32>, tensor<i1>) -> tensor<4xf32>
  func.return %w1 : tensor<4xf32>
}
