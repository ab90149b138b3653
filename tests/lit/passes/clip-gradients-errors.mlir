// RUN: aicf-opt %s --clip-gradients="norm=2" --split-input-file --verify-diagnostics

// expected-error@+1 {{@undifferentiated has no gradients among its results; run autodiff first}}
func.func @undifferentiated(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %l = nn.sum %w {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  func.return %l : tensor<f32>
}

// -----

// expected-error@+1 {{@twice has a host_scalar named "clip_grad_norm", which clip-gradients adds; leave it out}}
func.func @twice(
    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"},
    %m: tensor<f64> {aicf.role = "host_scalar", aicf.name = "clip_grad_norm"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}) {
  %l, %dw = "test.op"() : () -> (tensor<f32>, tensor<4xf32>)
  func.return %l, %dw : tensor<f32>, tensor<4xf32>
}

// -----

// expected-error@+1 {{@named has an output named "grad_norm", which clip-gradients adds; leave it out}}
func.func @named(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<f32> {aicf.role = "output", aicf.name = "grad_norm"},
        tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}) {
  %l, %n, %dw = "test.op"() : () -> (tensor<f32>, tensor<f32>, tensor<4xf32>)
  func.return %l, %n, %dw : tensor<f32>, tensor<f32>, tensor<4xf32>
}

// -----

// expected-error@+1 {{expected aicf.optimizer to be an array of dictionaries}}
func.func @groups(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<4xf32> {aicf.role = "grad", aicf.name = "w"})
    attributes {aicf.optimizer = 1 : i64} {
  %l, %dw = "test.op"() : () -> (tensor<f32>, tensor<4xf32>)
  func.return %l, %dw : tensor<f32>, tensor<4xf32>
}
