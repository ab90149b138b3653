// The differentiated function once for each micro-batch; sums in order, where a gradient is made, and the mean at the end.
// RUN: aicf-opt %s --accumulate=count=3 --split-input-file --verify-diagnostics | filecheck %s
// RUN: aicf-opt %s --accumulate=count=1 --split-input-file --verify-diagnostics | filecheck %s --check-prefix=ONE
// RUN: not aicf-opt %s --accumulate=count=0 2>&1 | filecheck %s --check-prefix=COUNT

// COUNT: expected a count of 1 or more, got 0

// Inputs are numbered, updates and the status go from one to the next, and the checks of all are told apart.
// CHECK-LABEL: func.func @step
// CHECK-NEXT:    %w: tensor<4xf16> {aicf.role = "param", aicf.name = "w"},
// CHECK-NEXT:    %x.0: tensor<4xf16> {aicf.role = "input", aicf.name = "x.0"},
// CHECK-NEXT:    %i.0: tensor<4xi64> {aicf.role = "input", aicf.name = "i.0"},
// CHECK-NEXT:    %x.1: tensor<4xf16> {aicf.role = "input", aicf.name = "x.1"},
// CHECK-NEXT:    %i.1: tensor<4xi64> {aicf.role = "input", aicf.name = "i.1"},
// CHECK-NEXT:    %x.2: tensor<4xf16> {aicf.role = "input", aicf.name = "x.2"},
// CHECK-NEXT:    %i.2: tensor<4xi64> {aicf.role = "input", aicf.name = "i.2"},
// CHECK-NEXT:    %r: tensor<2xi64> {aicf.role = "buffer", aicf.name = "random"},
// CHECK-NEXT:    %s: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}
// CHECK-NEXT:  ) -> (
// CHECK-NEXT:    tensor<f32> {aicf.role = "loss"},
// CHECK-NEXT:    tensor<2xi64> {aicf.role = "update", aicf.name = "random"},
// CHECK-NEXT:    tensor<3xi64> {aicf.role = "status", aicf.name = "failed"},
// CHECK-NEXT:    tensor<4xf16> {aicf.role = "output", aicf.name = "y.0"},
// CHECK-NEXT:    tensor<4xf16> {aicf.role = "output", aicf.name = "y.1"},
// CHECK-NEXT:    tensor<4xf16> {aicf.role = "output", aicf.name = "y.2"},
// CHECK-NEXT:    tensor<4xf16> {aicf.role = "grad", aicf.name = "w"}
// CHECK:         %checked = nn.check_index %s, %i.0 {classes = 2, code = 2}
// CHECK:         %y = nn.dropout %x.0, %r
// CHECK:         %n = nn.next_random %r
// CHECK:         %dw = nn.neg %y
// CHECK-NEXT:    %cast = nn.cast %dw : (tensor<4xf16>) -> tensor<4xf32>
// CHECK:         %checked.1 = nn.check_index %checked, %i.1 {classes = 2, code = 4}
// CHECK:         %y.1 = nn.dropout %x.1, %n
// CHECK:         %l.1 = nn.sum
// CHECK-NEXT:    %l.sum = nn.add %l, %l.1 {aicf.at_once} : tensor<f32>
// CHECK:         %n.1 = nn.next_random %n
// CHECK:         %dw.1 = nn.neg %y.1
// CHECK-NEXT:    %cast_1 = nn.cast %dw.1
// CHECK-NEXT:    %dw.sum = nn.add %cast, %cast_1 {aicf.at_once} : tensor<4xf32>
// CHECK:         %checked.2 = nn.check_index %checked.1, %i.2 {classes = 2, code = 6}
// CHECK:         %l.2 = nn.sum
// CHECK-NEXT:    %l.sum_1 = nn.add %l.sum, %l.2 : tensor<f32>
// CHECK-NEXT:    %constant = nn.constant {value = 3.0} : tensor<f32>
// CHECK-NEXT:    %l.mean = nn.div %l.sum_1, %constant
// CHECK:         %n.2 = nn.next_random %n.1
// CHECK:         %dw.sum_1 = nn.add %dw.sum, %cast_{{[0-9]}} : tensor<4xf32>
// CHECK:         %div = nn.div %dw.sum_1
// CHECK-NEXT:    %dw.mean = nn.cast %div : (tensor<4xf32>) -> tensor<4xf16>
// CHECK:         func.return %l.mean, %n.2, %checked.2, %y, %y.1, %y.2, %dw.mean

// ONE-LABEL: func.func @step
// ONE:         %x.0: tensor<4xf16>
// ONE:         func.return %l, %n, %checked, %y, %dw
func.func @step(
    %w: tensor<4xf16> {aicf.role = "param", aicf.name = "w"},
    %x: tensor<4xf16> {aicf.role = "input", aicf.name = "x"},
    %i: tensor<4xi64> {aicf.role = "input", aicf.name = "i"},
    %r: tensor<2xi64> {aicf.role = "buffer", aicf.name = "random"},
    %s: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<2xi64> {aicf.role = "update", aicf.name = "random"},
        tensor<3xi64> {aicf.role = "status", aicf.name = "failed"},
        tensor<4xf16> {aicf.role = "output", aicf.name = "y"}, tensor<4xf16> {aicf.role = "grad", aicf.name = "w"}) {
  %checked = nn.check_index %s, %i {classes = 2, code = 2} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
  %y = nn.dropout %x, %r {p = 0.5, site = 0} : (tensor<4xf16>, tensor<2xi64>) -> tensor<4xf16>
  %z = nn.cast %y : (tensor<4xf16>) -> tensor<4xf32>
  %l = nn.sum %z {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  %n = nn.next_random %r : tensor<2xi64>
  %dw = nn.neg %y : tensor<4xf16>
  func.return %l, %n, %checked, %y, %dw : tensor<f32>, tensor<2xi64>, tensor<3xi64>, tensor<4xf16>, tensor<4xf16>
}

// -----

// expected-error@+1 {{@undifferentiated has no gradients among its results; run autodiff first}}
func.func @undifferentiated(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %l = nn.sum %w {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  func.return %l : tensor<f32>
}
