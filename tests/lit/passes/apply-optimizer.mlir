// RUN: aicf-opt %s --apply-optimizer --split-input-file --verify-diagnostics | filecheck %s
// RUN: aicf-opt %s -p 'apply-optimizer{kind=sgd momentum=true nesterov=true maximize=true}' --split-input-file --verify-diagnostics | filecheck %s --check-prefix=SGD
// RUN: aicf-opt %s --apply-optimizer='kind=adamw amsgrad=true keep-grads=true' --split-input-file --verify-diagnostics | filecheck %s --check-prefix=ADAMW
// RUN: not aicf-opt %s --apply-optimizer='kind=adam momentum=true' --split-input-file 2>&1 | filecheck %s --check-prefix=MISFIT
// RUN: not aicf-opt %s --apply-optimizer='kind=sgd nesterov=true' --split-input-file 2>&1 | filecheck %s --check-prefix=NESTEROV

// The options make one group of all params that have a gradient.
// CHECK-LABEL: func.func @options(
// CHECK-NEXT:    %w: tensor<4x8xf32> {aicf.role = "param", aicf.name = "0.weight"},
// CHECK-NEXT:    %b: tensor<8xbf16> {aicf.role = "param", aicf.name = "0.bias"},
// CHECK-NEXT:    %dead: tensor<8xf32> {aicf.role = "param", aicf.name = "dead"},
// CHECK-NEXT:    %lr: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr"},
// CHECK-NEXT:    %beta1: tensor<f64> {aicf.role = "host_scalar", aicf.name = "beta1"},
// CHECK-NEXT:    %beta2: tensor<f64> {aicf.role = "host_scalar", aicf.name = "beta2"},
// CHECK-NEXT:    %eps: tensor<f64> {aicf.role = "host_scalar", aicf.name = "eps"},
// CHECK-NEXT:    %weight_decay: tensor<f64> {aicf.role = "host_scalar", aicf.name = "weight_decay"},
// CHECK-NEXT:    %bc1_pin: tensor<f64> {aicf.role = "host_scalar", aicf.name = "bc1_pin"},
// CHECK-NEXT:    %bc2_pin: tensor<f64> {aicf.role = "host_scalar", aicf.name = "bc2_pin"},
// CHECK-NEXT:    %bc1_inv: tensor<2xf64> {aicf.role = "host_scalar", aicf.name = "bc1_inv"},
// CHECK-NEXT:    %bc2_inv: tensor<2xf64> {aicf.role = "host_scalar", aicf.name = "bc2_inv"},
// CHECK-NEXT:    %step: tensor<2xf32> {aicf.role = "state", aicf.name = "step"},
// CHECK-NEXT:    %w.exp_avg: tensor<4x8xf32> {aicf.role = "state", aicf.name = "0.weight.exp_avg"},
// CHECK-NEXT:    %w.exp_avg_sq: tensor<4x8xf32> {aicf.role = "state", aicf.name = "0.weight.exp_avg_sq"},
// CHECK-NEXT:    %b.exp_avg: tensor<8xbf16> {aicf.role = "state", aicf.name = "0.bias.exp_avg"},
// CHECK-NEXT:    %b.exp_avg_sq: tensor<8xbf16> {aicf.role = "state", aicf.name = "0.bias.exp_avg_sq"}
// CHECK-NEXT:  )
// CHECK-SAME:    -> (
// CHECK-NEXT:      tensor<f32> {aicf.role = "loss"},
// CHECK-NEXT:    tensor<2xf32> {aicf.role = "update", aicf.name = "step"},
// CHECK-NEXT:    tensor<2xf64> {aicf.role = "update", aicf.name = "bc1_inv"},
// CHECK-NEXT:    tensor<2xf64> {aicf.role = "update", aicf.name = "bc2_inv"},
// CHECK-NEXT:    tensor<4x8xf32> {aicf.role = "update", aicf.name = "0.weight"},
// CHECK-NEXT:    tensor<4x8xf32> {aicf.role = "update", aicf.name = "0.weight.exp_avg"},
// CHECK-NEXT:    tensor<4x8xf32> {aicf.role = "update", aicf.name = "0.weight.exp_avg_sq"},
// CHECK-NEXT:    tensor<8xbf16> {aicf.role = "update", aicf.name = "0.bias"},
// CHECK-NEXT:    tensor<8xbf16> {aicf.role = "update", aicf.name = "0.bias.exp_avg"},
// CHECK-NEXT:    tensor<8xbf16> {aicf.role = "update", aicf.name = "0.bias.exp_avg_sq"}
// CHECK-NEXT:  )
// CHECK-SAME:    attributes {
// CHECK-NEXT:      aicf.optimizer = [
// CHECK-NEXT:        {kind = "adam", params = ["0.weight", "0.bias"], amsgrad = false, decoupled = false, maximize = false}
// CHECK-NEXT:      ]
// CHECK-NEXT:    }
// CHECK-NEXT:    %loss, %dw, %db = "test.op"()
// CHECK-NEXT:    %step.next, %bc1_inv.next, %bc2_inv.next = optim.advance %step, %beta1, %beta2, %bc1_pin, %bc2_pin
// CHECK-NEXT:      : (tensor<2xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) -> (tensor<2xf32>, tensor<2xf64>,
// CHECK-NEXT:        tensor<2xf64>)
// CHECK-NEXT:    %w.next, %w.exp_avg.next, %w.exp_avg_sq.next = optim.adam
// CHECK-NEXT:      %w, %dw, %w.exp_avg, %w.exp_avg_sq, %lr, %beta1, %beta2, %eps, %weight_decay, %bc1_inv.next, %bc2_inv.next
// CHECK-NEXT:      {index = 0}
// CHECK-NEXT:      : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>,
// CHECK-NEXT:        tensor<f64>, tensor<f64>, tensor<2xf64>, tensor<2xf64>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
// CHECK-NEXT:    %b.next, %b.exp_avg.next, %b.exp_avg_sq.next = optim.adam
// CHECK-NEXT:      %b, %db, %b.exp_avg, %b.exp_avg_sq, %lr, %beta1, %beta2, %eps, %weight_decay, %bc1_inv.next, %bc2_inv.next
// CHECK-NEXT:      {index = 1}
// CHECK-NEXT:      : (tensor<8xbf16>, tensor<8xbf16>, tensor<8xbf16>, tensor<8xbf16>, tensor<f64>, tensor<f64>, tensor<f64>,
// CHECK-NEXT:        tensor<f64>, tensor<f64>, tensor<2xf64>, tensor<2xf64>) -> (tensor<8xbf16>, tensor<8xbf16>, tensor<8xbf16>)
// CHECK-NEXT:    func.return %loss, %step.next, %bc1_inv.next, %bc2_inv.next, %w.next, %w.exp_avg.next, %w.exp_avg_sq.next, %b.next,
// CHECK-NEXT:      %b.exp_avg.next, %b.exp_avg_sq.next :

// SGD-LABEL:   func.func @options(
// SGD:           %lr: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr"},
// SGD-NEXT:      %weight_decay: tensor<f64> {aicf.role = "host_scalar", aicf.name = "weight_decay"},
// SGD-NEXT:      %momentum: tensor<f64> {aicf.role = "host_scalar", aicf.name = "momentum"},
// SGD-NEXT:      %dampening: tensor<f64> {aicf.role = "host_scalar", aicf.name = "dampening"},
// SGD-NEXT:      %step: tensor<2xf32> {aicf.role = "state", aicf.name = "step"},
// SGD-NEXT:      %w.momentum_buffer: tensor<4x8xf32> {aicf.role = "state", aicf.name = "0.weight.momentum_buffer"},
// SGD-NEXT:      %b.momentum_buffer: tensor<8xbf16> {aicf.role = "state", aicf.name = "0.bias.momentum_buffer"}
// SGD-NEXT:    )
// SGD:             aicf.optimizer = [{kind = "sgd", params = ["0.weight", "0.bias"], momentum = true, nesterov = true, maximize = true}]
// SGD-NEXT:      }
// SGD:           %step.next = optim.advance %step : tensor<2xf32>
// SGD-NEXT:      %w.next, %w.momentum_buffer.next = optim.sgd
// SGD-NEXT:        %w, %dw, %lr, %weight_decay, %w.momentum_buffer, %momentum, %dampening, %step.next
// SGD-NEXT:        {index = 0, nesterov = true, maximize = true}
// SGD-NEXT:        : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<4x8xf32>, tensor<f64>, tensor<f64>,
// SGD-NEXT:        tensor<2xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
// SGD-NEXT:      %b.next, %b.momentum_buffer.next = optim.sgd
// SGD-NEXT:        %b, %db, %lr, %weight_decay, %b.momentum_buffer, %momentum, %dampening, %step.next
// SGD-NEXT:        {index = 1, nesterov = true, maximize = true}
// SGD-NEXT:        : (tensor<8xbf16>, tensor<8xbf16>, tensor<f64>, tensor<f64>, tensor<8xbf16>, tensor<f64>, tensor<f64>,
// SGD-NEXT:        tensor<2xf32>) -> (tensor<8xbf16>, tensor<8xbf16>)
// SGD-NEXT:      func.return %loss, %step.next, %w.next, %w.momentum_buffer.next, %b.next, %b.momentum_buffer.next
// SGD-NEXT:        : tensor<f32>, tensor<2xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xbf16>, tensor<8xbf16>

// ADAMW-LABEL: func.func @options(
// ADAMW:         %w.max_exp_avg_sq: tensor<4x8xf32> {aicf.role = "state", aicf.name = "0.weight.max_exp_avg_sq"}
// ADAMW:         tensor<4x8xf32> {aicf.role = "grad", aicf.name = "0.weight"},
// ADAMW-NEXT:    tensor<8xbf16> {aicf.role = "grad", aicf.name = "0.bias"},
// ADAMW-NEXT:    tensor<2xf32> {aicf.role = "update", aicf.name = "step"}
// ADAMW:         amsgrad = true, decoupled = true, maximize = false
// ADAMW:         optim.adam %w, %dw, %w.exp_avg,
// ADAMW-NEXT:      %w.exp_avg_sq, %lr, %beta1, %beta2, %eps, %weight_decay, %bc1_inv.next, %bc2_inv.next, %w.max_exp_avg_sq
// ADAMW-NEXT:      {index = 0, decoupled = true, amsgrad = true}
// ADAMW-NEXT:      : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f64>, tensor<f64>, tensor<f64>,
// ADAMW:         func.return %loss, %dw, %db, %step.next,

// MISFIT:   error: {{.*}}expected neither momentum, nesterov, centered nor decoupled for kind=adam
// NESTEROV: error: {{.*}}expected momentum=true with nesterov=true, and neither amsgrad, centered nor decoupled, for kind=sgd
func.func @options(
    %w: tensor<4x8xf32> {aicf.role = "param", aicf.name = "0.weight"},
    %b: tensor<8xbf16> {aicf.role = "param", aicf.name = "0.bias"},
    %dead: tensor<8xf32> {aicf.role = "param", aicf.name = "dead"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<4x8xf32> {aicf.role = "grad", aicf.name = "0.weight"}, tensor<8xbf16> {aicf.role = "grad", aicf.name = "0.bias"}) {
  %loss, %dw, %db = "test.op"() : () -> (tensor<f32>, tensor<4x8xf32>, tensor<8xbf16>)
  func.return %loss, %dw, %db : tensor<f32>, tensor<4x8xf32>, tensor<8xbf16>
}

// -----

// The groups of the attribute: a dead param leaves its group, an empty group leaves only its index behind, and a
// param that is in no group stays as it is.
// CHECK-LABEL: func.func @groups(
// CHECK:         %free: tensor<2xf32> {aicf.role = "param", aicf.name = "free"},
// CHECK-NEXT:    %lr: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr"},
// CHECK-NEXT:    %weight_decay: tensor<f64> {aicf.role = "host_scalar", aicf.name = "weight_decay"},
// CHECK-NEXT:    %lr.2: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr.2"}
// CHECK:         %step.2: tensor<1xf32> {aicf.role = "state", aicf.name = "step.2"},
// CHECK-NEXT:    %b.exp_avg: tensor<8xf32> {aicf.role = "state", aicf.name = "b.exp_avg"}
// CHECK:         -> (
// CHECK-NEXT:      tensor<f32> {aicf.role = "loss"},
// CHECK-NEXT:      tensor<4xf32> {aicf.role = "update", aicf.name = "w"},
// CHECK-NEXT:      tensor<1xf32> {aicf.role = "update", aicf.name = "step.2"},
// CHECK-NEXT:      tensor<1xf64> {aicf.role = "update", aicf.name = "bc1_inv.2"},
// CHECK-NEXT:      tensor<1xf64> {aicf.role = "update", aicf.name = "bc2_inv.2"},
// CHECK-NEXT:      tensor<8xf32> {aicf.role = "update", aicf.name = "b"}
// CHECK:         params = ["w"], momentum = false
// CHECK-NEXT:    params = [], amsgrad = false
// CHECK-NEXT:    params = ["b"], amsgrad = false
// CHECK:         %w.next = optim.sgd %w, %dw, %lr, %weight_decay
// CHECK-NEXT:      : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
// CHECK-NEXT:    %step.2.next, %bc1_inv.2.next, %bc2_inv.2.next = optim.advance %step.2, %beta1.2, %beta2.2, %bc1_pin.2, %bc2_pin.2
// CHECK-NEXT:      : (tensor<1xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) -> (tensor<1xf32>, tensor<1xf64>,
// CHECK-NEXT:        tensor<1xf64>)
// CHECK-NEXT:    %b.next, %b.exp_avg.next, %b.exp_avg_sq.next = optim.adam %b, %db, %b.exp_avg, %b.exp_avg_sq, %lr.2,
// CHECK-NEXT:        %beta2.2, %eps.2, %weight_decay.2, %bc1_inv.2.next, %bc2_inv.2.next {index = 0}
// CHECK-NEXT:        : (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>,
// CHECK-NEXT:        tensor<f64>, tensor<1xf64>, tensor<1xf64>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>)
// CHECK-NEXT:    func.return
func.func @groups(
    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"},
    %b: tensor<8xf32> {aicf.role = "param", aicf.name = "b"},
    %dead: tensor<2xf32> {aicf.role = "param", aicf.name = "dead"},
    %free: tensor<2xf32> {aicf.role = "param", aicf.name = "free"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}, tensor<8xf32> {aicf.role = "grad", aicf.name = "b"}, tensor<2xf32> {aicf.role = "grad", aicf.name = "free"})
    attributes {aicf.optimizer = [{kind = "sgd", params = ["w"]}, {kind = "adam", params = ["dead"]}, {kind = "adam", params = ["b"]}]} {
  %loss, %dw, %db, %df = "test.op"() : () -> (tensor<f32>, tensor<4xf32>, tensor<8xf32>, tensor<2xf32>)
  func.return %loss, %dw, %db, %df : tensor<f32>, tensor<4xf32>, tensor<8xf32>, tensor<2xf32>
}

// -----

// expected-error@below {{@forward has no gradients among its results; run autodiff first}}
func.func @forward(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<4xf32> {aicf.role = "output", aicf.name = "y"}) {
  func.return %w : tensor<4xf32>
}

// -----

// expected-error@below {{aicf.optimizer: expected names of params of @unknown, got "v"}}
func.func @unknown(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}) attributes {aicf.optimizer = [{kind = "sgd", params = ["v"]}]} {
  func.return %w : tensor<4xf32>
}

// -----

// expected-error@below {{expected aicf.optimizer to be an array of dictionaries, got "sgd"}}
func.func @no_array(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}) attributes {aicf.optimizer = "sgd"} {
  func.return %w : tensor<4xf32>
}

// -----

// expected-error@below {{aicf.optimizer, group 0: expected kind to be one of sgd, adam, adadelta, adagrad, adamax, asgd, lion, nadam, radam, rmsprop, rprop, traced, got "muon"}}
func.func @kind(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}) attributes {aicf.optimizer = [{kind = "muon", params = ["w"]}]} {
  func.return %w : tensor<4xf32>
}

// -----

// expected-error@below {{aicf.optimizer, group 0: expected params to be the names of arguments, got "w"}}
func.func @params(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}) attributes {aicf.optimizer = [{kind = "sgd", params = "w"}]} {
  func.return %w : tensor<4xf32>
}

// -----

// expected-error@below {{aicf.optimizer, group 0: expected the flags momentum, nesterov, maximize, got amsgrad}}
func.func @flag(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}) attributes {aicf.optimizer = [{kind = "sgd", params = ["w"], amsgrad = true}]} {
  func.return %w : tensor<4xf32>
}

// -----

// expected-error@below {{aicf.optimizer, group 0: expected momentum to be true or false, got}}
func.func @flag_type(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}) attributes {aicf.optimizer = [{kind = "sgd", params = ["w"], momentum = 0.9}]} {
  func.return %w : tensor<4xf32>
}

// -----

// expected-error@below {{aicf.optimizer, group 0: expected momentum = true beside nesterov = true}}
func.func @nesterov(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}) attributes {aicf.optimizer = [{kind = "sgd", params = ["w"], nesterov = true}]} {
  func.return %w : tensor<4xf32>
}

// -----

// expected-error@below {{expected each parameter once in aicf.optimizer, got w again}}
func.func @twice(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}) attributes {aicf.optimizer = [{kind = "sgd", params = ["w"]}, {kind = "sgd", params = ["w"]}]} {
  func.return %w : tensor<4xf32>
}

// -----

// expected-error@below {{@clash has a host_scalar named "lr", which apply-optimizer adds; leave it out}}
func.func @clash(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %lr: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr"}) -> (tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}) {
  func.return %w : tensor<4xf32>
}
