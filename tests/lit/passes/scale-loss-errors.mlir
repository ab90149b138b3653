// RUN: aicf-opt %s --autodiff=scaled --scale-loss --split-input-file --verify-diagnostics

// expected-error@+1 {{@scaled has a buffer named "loss_scale", which autodiff{scaled} adds; leave it out}}
func.func @scaled(
    %w: tensor<f32> {aicf.role = "param", aicf.name = "w"},
    %b: tensor<f32> {aicf.role = "buffer", aicf.name = "loss_scale"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %l = nn.mul %w, %b : tensor<f32>
  func.return %l : tensor<f32>
}

// -----

// expected-error@+1 {{@counted has a buffer named "loss_scale.skipped", which scale-loss adds; leave it out}}
func.func @counted(
    %w: tensor<f32> {aicf.role = "param", aicf.name = "w"},
    %b: tensor<f32> {aicf.role = "buffer", aicf.name = "loss_scale.skipped"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %l = nn.mul %w, %b : tensor<f32>
  func.return %l : tensor<f32>
}

// -----

// expected-error@+1 {{@told has an output named "all_finite", which scale-loss adds; leave it out}}
func.func @told(%w: tensor<f32> {aicf.role = "param", aicf.name = "w"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<f32> {aicf.role = "output", aicf.name = "all_finite"}) {
  %l = nn.mul %w, %w : tensor<f32>
  func.return %l, %l : tensor<f32>, tensor<f32>
}
