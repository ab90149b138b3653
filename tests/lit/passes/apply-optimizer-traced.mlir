// RUN: aicf-opt %s --apply-optimizer --split-input-file --verify-diagnostics | filecheck %s

// A private function that the groups name is put behind the gradients: its inputs are these, its states and host scalars new arguments.

func.func @step(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %dw: tensor<4xf32> {aicf.role = "input", aicf.name = "x"})
    -> (tensor<4xf32> {aicf.role = "grad", aicf.name = "w"})
    attributes {aicf.optimizer = [{kind = "traced", params = ["w"], title = "Mine", update = @step_update, settings = {lr = "lr"}, states = {w = ["m"]}}]} {
  func.return %dw : tensor<4xf32>
}
func.func private @step_update(
    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %g: tensor<4xf32> {aicf.role = "input", aicf.name = "w"},
    %m: tensor<4xf32> {aicf.role = "state", aicf.name = "w.m"}, %lr: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr"})
    -> (tensor<4xf32> {aicf.role = "update", aicf.name = "w", aicf.of = "param"}, tensor<4xf32> {aicf.role = "update", aicf.name = "w.m"}) {
  %sum = nn.add %m, %g : tensor<4xf32>
  %rate = nn.cast %lr : (tensor<f64>) -> tensor<f32>
  %way = nn.mul %sum, %rate : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %next = nn.sub %w, %way : tensor<4xf32>
  func.return %next, %sum : tensor<4xf32>, tensor<4xf32>
}

// CHECK:       func.func @step(
// CHECK-NEXT:    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"},
// CHECK-NEXT:    %dw: tensor<4xf32> {aicf.role = "input", aicf.name = "x"},
// CHECK-NEXT:    %m: tensor<4xf32> {aicf.role = "state", aicf.name = "w.m"},
// CHECK-NEXT:    %lr: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr"}
// CHECK:         %sum = nn.add %m, %dw : tensor<4xf32>
// CHECK:         %next = nn.sub %w, %way : tensor<4xf32>
// CHECK:         func.return %next, %sum
// CHECK-NOT:   func.func private

// -----

// expected-error@below {{expected a private function @gone, which updates the parameters, got none}}
func.func @gone(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}) attributes {aicf.optimizer = [{kind = "traced", params = ["w"], title = "Mine", update = @gone, settings = {}, states = {}}]} {
  func.return %w : tensor<4xf32>
}

// -----

// Beside groups that rules describe each group is updated by its own; group numbers are those of the step.

func.func @mixed(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %v: tensor<4xf32> {aicf.role = "param", aicf.name = "v"}) -> (tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}, tensor<4xf32> {aicf.role = "grad", aicf.name = "v"}) attributes {aicf.optimizer = [{kind = "sgd", params = ["v"], momentum = false, nesterov = false, maximize = false}, {kind = "traced", params = ["w"], title = "Mine", update = @mixed_update, settings = {lr = "lr"}, states = {}}]} {
  func.return %w, %v : tensor<4xf32>, tensor<4xf32>
}
func.func private @mixed_update(
    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %g: tensor<4xf32> {aicf.role = "input", aicf.name = "w"},
    %rate: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr.1"}) -> (tensor<4xf32> {aicf.role = "update", aicf.name = "w", aicf.of = "param"}) {
  %rate32 = nn.cast %rate : (tensor<f64>) -> tensor<f32>
  %way = nn.mul %g, %rate32 : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %next = nn.sub %w, %way : tensor<4xf32>
  func.return %next : tensor<4xf32>
}

// CHECK:       func.func @mixed(
// CHECK:         %lr: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr"}
// CHECK:         %rate: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr.1"}
// CHECK:         %v.next = optim.sgd
// CHECK:         %next = nn.sub %w, %way : tensor<4xf32>
// CHECK:         func.return %v.next, %next
// CHECK-NOT:   func.func private

// -----

// expected-error@below {{expected the title, the update, the settings and the states of a traced optimizer, got title}}
func.func @entries(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}) attributes {aicf.optimizer = [{kind = "traced", params = ["w"], title = "Mine"}]} {
  func.return %w : tensor<4xf32>
}

// -----

// expected-error@below {{expected the names of the hyperparameters in the setting lr, got 1.000000e+00 : f64}}
func.func @setting(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}) attributes {aicf.optimizer = [{kind = "traced", params = ["w"], title = "Mine", update = @u, settings = {lr = 1.0 : f64}, states = {}}]} {
  func.return %w : tensor<4xf32>
}
