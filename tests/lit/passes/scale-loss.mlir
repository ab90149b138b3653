// Gradients of a scaled loss are divided by the scale again, and the scale follows torch.amp.GradScaler's rules.
// RUN: aicf-opt %s --autodiff=scaled --scale-loss="growth=4 backoff=0.25 interval=3" --split-input-file | filecheck %s
// RUN: not aicf-opt %s --scale-loss="growth=0.5" 2>&1 | filecheck %s --check-prefix=FACTORS
// RUN: not aicf-opt %s --autodiff --scale-loss 2>&1 | filecheck %s --check-prefix=UNSCALED
// RUN: not aicf-opt %s --autodiff=scaled --autodiff=scaled 2>&1 | filecheck %s --check-prefix=TWICE

// FACTORS: expected a growth of 1 or more, a backoff above 0 up to 1 and an interval of 1 or more, got 0.5, 0.5 and 2000
// UNSCALED: @step has no gradients of a scaled loss among its results; run autodiff{scaled} first
// TWICE: @step has gradients among its results: it is differentiated already

// The loss itself is returned as it is; its cotangent is the scale, and what overflows there is found with the gradients.
// CHECK-LABEL: func.func @step
// CHECK:         %loss_scale: tensor<f32> {aicf.role = "buffer", aicf.name = "loss_scale"},
// CHECK-NEXT:    %loss_scale.growth: tensor<i64> {aicf.role = "buffer", aicf.name = "loss_scale.growth"},
// CHECK-NEXT:    %loss_scale.skipped: tensor<i64> {aicf.role = "buffer", aicf.name = "loss_scale.skipped"}
// CHECK:         %dl = nn.cast %loss_scale : (tensor<f32>) -> tensor<f16>
// CHECK:         %cast_1 = nn.cast %reciprocal : (tensor<f64>) -> tensor<f32>
// CHECK-NEXT:    %isfinite = nn.isfinite %dw : (tensor<4xf16>) -> tensor<4xi1>
// CHECK:         %all_finite = nn.all %concat
// CHECK-NEXT:    %cast_2 = nn.cast %dw : (tensor<4xf16>) -> tensor<4xf32>
// CHECK-NEXT:    %mul = nn.mul %cast_2, %cast_1 : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:    %dw.unscaled = nn.cast %mul : (tensor<4xf32>) -> tensor<4xf16>
// CHECK:         %constant_2 = nn.constant {value = 4.0} : tensor<f64>
// CHECK:         %where = nn.where %isfinite_1, %cast_3, %loss_scale
// CHECK:         %constant_3 = nn.constant {value = 0.25} : tensor<f64>
// CHECK:         %constant_4 = nn.constant {value = 3.0} : tensor<i64>
// CHECK-NEXT:    %eq = nn.eq %add, %constant_4
// CHECK-NEXT:    %where_1 = nn.where %eq, %where, %loss_scale
// CHECK-NEXT:    %loss_scale.next = nn.where %all_finite, %where_1, %cast_4
// CHECK-NEXT:    %where_2 = nn.where %eq, %constant, %add
// CHECK-NEXT:    %loss_scale.growth.next = nn.where %all_finite, %where_2, %constant
// CHECK:         %loss_scale.skipped.next = nn.add %loss_scale.skipped, %where_3
// CHECK-NEXT:    func.return %l, %dw.unscaled, %all_finite, %loss_scale.next, %loss_scale.growth.next, %loss_scale.skipped.next

func.func @step(%w: tensor<4xf16> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f16> {aicf.role = "loss"}) {
  %l = nn.sum %w {dims = array<i64: 0>} : (tensor<4xf16>) -> tensor<f16>
  func.return %l : tensor<f16>
}
