// The loss and the gradients are checked before the first update; the check follows those of the model.
// RUN: aicf-opt %s --check-finite --apply-optimizer=kind=sgd --split-input-file --verify-diagnostics | filecheck %s

// CHECK-LABEL: func.func @first
// CHECK:         %failed: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"},
// CHECK-NEXT:    %lr
// CHECK:         -> (
// CHECK-NEXT:      tensor<f32> {aicf.role = "loss"},
// CHECK-NEXT:      tensor<3xi64> {aicf.role = "status", aicf.name = "failed"},
// CHECK-NEXT:      tensor<4xf32> {aicf.role = "update", aicf.name = "w"}
// CHECK-NEXT:    )
// CHECK:         %check_finite = nn.check_finite %failed, %l, %g {code = 1}
// CHECK-NEXT:      : (tensor<3xi64>, tensor<f32>, tensor<4xf32>) -> tensor<3xi64>
// CHECK-NEXT:    optim.sgd
func.func @first(
    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %x: tensor<4xf32> {aicf.role = "input", aicf.name = "x"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}) {
  %l = nn.sum %x {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  %g = nn.neg %x : tensor<4xf32>
  func.return %l, %g : tensor<f32>, tensor<4xf32>
}

// -----

// CHECK-LABEL: func.func @second
// CHECK:         %t1 = nn.check_index %s, %t {classes = 2, code = 5}
// CHECK:         nn.check_finite %t1, %l, %g {code = 6}
func.func @second(
    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %x: tensor<4xf32> {aicf.role = "input", aicf.name = "x"},
    %t: tensor<4xi64> {aicf.role = "input", aicf.name = "t"}, %s: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<4xf32> {aicf.role = "grad", aicf.name = "w"},
        tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}) {
  %l = nn.sum %x {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  %t1 = nn.check_index %s, %t {code = 5, classes = 2} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
  %g = nn.neg %x : tensor<4xf32>
  func.return %l, %g, %t1 : tensor<f32>, tensor<4xf32>, tensor<3xi64>
}

// -----

// expected-error@+1 {{@undifferentiated has no loss with gradients among its results; run autodiff first}}
func.func @undifferentiated(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %l = nn.sum %w {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  func.return %l : tensor<f32>
}
