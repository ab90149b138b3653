// RUN: aicf-opt %s --verify-host-scalars=quiet=true --split-input-file --verify-diagnostics | filecheck %s
// RUN: not aicf-opt %s --verify-host-scalars --split-input-file 2>&1 | filecheck %s --check-prefix=TABLE
// RUN: aicf-opt %S/../../../examples/train_step.mlir --verify-host-scalars=quiet -o %t

// A table of all scalars: what the host writes, what the param groups compile in, numbers with their source.
// TABLE:      name value kind source used by
// TABLE-NEXT: lr live host_scalar the optimizer or the host optim.sgd
// TABLE-NEXT: weight_decay live host_scalar the optimizer or the host optim.sgd
// TABLE-NEXT: param_groups[0].momentum false guarded the optimizer sgd
// TABLE-NEXT: param_groups[0].nesterov false guarded the optimizer sgd
// TABLE-NEXT: param_groups[0].maximize true guarded the optimizer sgd
// TABLE-NEXT: nn.constant 0.5 computed model.py:3 nn.mul
// CHECK-LABEL: func.func @table(
// CHECK: nn.constant {value = 0.5}
func.func @table(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %lr: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr"}, %weight_decay: tensor<f64> {aicf.role = "host_scalar", aicf.name = "weight_decay"}) -> (tensor<4xf32> {aicf.role = "update", aicf.name = "w"}) attributes {aicf.optimizer = [{kind = "sgd", params = ["w"], maximize = true}]} {
  %half = nn.constant {value = 0.5} : tensor<f32> loc("model.py":3:1)
  %g = nn.mul %w, %half : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %next = optim.sgd %w, %g, %lr, %weight_decay {maximize = true} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  func.return %next : tensor<4xf32>
}

// -----

// Attributes that are numbers count too; one with the value of its op's default needs no source.
// TABLE:      nn.cross_entropy ignore_index -100 default model.py:7 nn.cross_entropy
// TABLE-NEXT: nn.cross_entropy label_smoothing 0.1 computed model.py:7 nn.cross_entropy
// CHECK-LABEL: func.func @attributes(
func.func @attributes(%x: tensor<2x4xf32>, %t: tensor<2xi64>) -> tensor<f32> {
  %loss = nn.cross_entropy %x, %t {label_smoothing = 0.1} : (tensor<2x4xf32>, tensor<2xi64>) -> tensor<f32> loc("model.py":7:1)
  func.return %loss : tensor<f32>
}

// -----

// The site of a draw is a place and no scalar, before it is a constant in memory and after.
// TABLE-NOT:  kernel.constant 3.0
// CHECK-LABEL: func.func @site(
func.func @site() -> tensor<i64> {
  %site = kernel.constant {value = 3.0, data} : tensor<i64>
  func.return %site : tensor<i64>
}

// -----

func.func @baked_in_lr(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %weight_decay: tensor<f64> {aicf.role = "host_scalar", aicf.name = "weight_decay"}) -> (tensor<4xf32> {aicf.role = "update", aicf.name = "w"}) {
  %lr = nn.constant {value = 0.01} : tensor<f64> loc("model.py":3:1)
  // expected-error@below {{expected lr to be a host scalar, which follows the param group, got the constant 0.01: a hyperparameter that is baked in would ignore the optimizer}}
  %next = optim.sgd %w, %w, %lr, %weight_decay : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  func.return %next : tensor<4xf32>
}

// -----

func.func @computed_lr(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %x: tensor<f64> {aicf.role = "input", aicf.name = "x"}, %weight_decay: tensor<f64> {aicf.role = "host_scalar", aicf.name = "weight_decay"}) -> (tensor<4xf32> {aicf.role = "update", aicf.name = "w"}) {
  %lr = nn.neg %x : tensor<f64>
  // expected-error@below {{expected lr to be a host scalar, which follows the param group, got a result of nn.neg}}
  %next = optim.sgd %w, %w, %lr, %weight_decay : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  func.return %next : tensor<4xf32>
}

// -----

func.func @lr_from_the_batch(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %x: tensor<f64> {aicf.role = "input", aicf.name = "x"}, %weight_decay: tensor<f64> {aicf.role = "host_scalar", aicf.name = "weight_decay"}) -> (tensor<4xf32> {aicf.role = "update", aicf.name = "w"}) {
  // expected-error@below {{expected lr to be a host scalar, which follows the param group, got an argument of role input}}
  %next = optim.sgd %w, %w, %x, %weight_decay : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  func.return %next : tensor<4xf32>
}

// -----

func.func @baked_into_a_launch(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %lr: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr"}) -> (tensor<4xf32> {aicf.role = "update", aicf.name = "w"}) {
  %weight_decay = kernel.constant {value = 0.0} : tensor<f64> loc("model.py":3:1)
  // expected-error@below {{expected weight_decay to be a host scalar, which follows the param group, got the constant 0.0}}
  %next = kernel.sgd_step p(%w) g(%w) lr(%lr) weight_decay(%weight_decay) {groups = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  func.return %next : tensor<4xf32>
}

// -----

func.func @a_vector_baked_into_a_launch(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %h: tensor<f64> {aicf.role = "host_scalar", aicf.name = "h"}, %step: tensor<2xf64> {aicf.role = "host_scalar", aicf.name = "bc1_inv"}) -> (tensor<4xf32> {aicf.role = "update", aicf.name = "w"}) {
  %one = kernel.constant {value = 1.0} : tensor<2xf64> loc("model.py":3:1)
  // expected-error@below {{expected bc2_inv to be a host scalar, which follows the param group, got the constant 1.0}}
  %next, %m, %v = kernel.adam_step p(%w) g(%w) m(%w) v(%w) lr(%h) beta1(%h) beta2(%h) eps(%h) weight_decay(%h) bc1_inv(%step) bc2_inv(%one) {groups = array<i64: 0>, indices = array<i64: 1>} : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<2xf64>, tensor<2xf64>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  func.return %next : tensor<4xf32>
}

// -----

// The element of a parameter is a place, not a number that somebody may want to change.
// CHECK-LABEL: func.func @index(
func.func @index(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %h: tensor<f64> {aicf.role = "host_scalar", aicf.name = "h"}, %step: tensor<2xf32> {aicf.role = "state", aicf.name = "step"}) -> (tensor<4xf32> {aicf.role = "update", aicf.name = "w"}) {
  %next, %buf = optim.sgd %w, %w, %h, %h, %w, %h, %h, %step {index = 1} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>, tensor<4xf32>, tensor<f64>, tensor<f64>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  func.return %next : tensor<4xf32>
}

// -----

plan.program @baked_into_a_plan target "cpu" {
  plan.slot @w : memref<4xf32> param "w"
  plan.slot @g : memref<4xf32> input "g"
  plan.slot @lr : memref<f64> const 0.01
  plan.slot @weight_decay : memref<f64> host_scalar "weight_decay"
  // expected-error@below {{@k0 reads the constant @lr as lr; expected a host scalar, which follows the param group: a hyperparameter that is baked in would ignore the optimizer}}
  plan.launch @k0 "sgd_step_cpu" sgd_step p(@w) g(@g) lr(@lr) weight_decay(@weight_decay) -> p(@w) {groups = array<i64: 0>}
}
