// Of a scaled loss each backward pass begins with a share of the scale, and the sum of its gradients is their mean.
// RUN: aicf-opt %s --autodiff=scaled --accumulate=count=2 --split-input-file | filecheck %s
// RUN: aicf-opt %s --autodiff=scaled --accumulate=count=1 --split-input-file | filecheck %s --check-prefix=ONE

// CHECK-LABEL: func.func @single
// CHECK:         %constant = nn.constant {value = 2.0} : tensor<f32>
// CHECK-NEXT:    %loss_scale.share = nn.div %loss_scale, %constant : tensor<f32>
// CHECK-NEXT:    %reshape = nn.reshape %loss_scale.share
// CHECK-NEXT:    %dw = nn.broadcast_to %reshape
// CHECK:         %l.mean = nn.div %l.sum
// CHECK:         %loss_scale.share.1 = nn.div %loss_scale
// CHECK-NEXT:    %reshape.1 = nn.reshape %loss_scale.share.1
// CHECK-NEXT:    %dw.1 = nn.broadcast_to %reshape.1
// CHECK-NEXT:    %dw.mean = nn.add %dw, %dw.1 : tensor<4xf32>
// CHECK-NEXT:    func.return %l.mean, %dw.mean

// ONE-LABEL: func.func @single
// ONE-NOT:     nn.div
func.func @single(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %l = nn.sum %w {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  func.return %l : tensor<f32>
}

// -----

// Divided in the type of the loss, as torch divides it: a scale that this does not hold stays infinite.
// CHECK-LABEL: func.func @half
// CHECK:         %dl = nn.cast %loss_scale : (tensor<f32>) -> tensor<f16>
// CHECK-NEXT:    %constant = nn.constant {value = 2.0} : tensor<f16>
// CHECK-NEXT:    %dl.share = nn.div %dl, %constant : tensor<f16>
// CHECK:         %dw.sum = nn.add
// CHECK-NEXT:    %dw.mean = nn.cast %dw.sum : (tensor<4xf32>) -> tensor<4xf16>
func.func @half(%w: tensor<4xf16> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f16> {aicf.role = "loss"}) {
  %l = nn.sum %w {dims = array<i64: 0>} : (tensor<4xf16>) -> tensor<f16>
  func.return %l : tensor<f16>
}

// -----

// A parameter whose gradient is the scale itself.
// CHECK-LABEL: func.func @only
// CHECK:         %loss_scale.share.mean = nn.add %loss_scale.share, %loss_scale.share.1 : tensor<f32>
// CHECK:         func.return %w.mean, %loss_scale.share.mean
func.func @only(%w: tensor<f32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}) {
  func.return %w : tensor<f32>
}
