// RUN: aicf-opt %s --decompose --split-input-file | filecheck %s
// RUN: aicf-opt %s --decompose --lower --split-input-file | filecheck %s --check-prefix=LOWER

// An op without a launch is written by ops that have one; both results are taken over. The mean and
// the sum of squares are corrected by the mean of the differences, which rounding leaves.
// CHECK-LABEL: func.func @statistics
// CHECK-NEXT:    %[[MEAN:.*]] = nn.mean %x {dims = array<i64: 0>, keepdim = true} : (tensor<4x3xf32>) -> tensor<1x3xf32>
// CHECK-NEXT:    %[[DIFFERENCE:.*]] = nn.sub %x, %[[MEAN]] : (tensor<4x3xf32>, tensor<1x3xf32>) -> tensor<4x3xf32>
// CHECK-NEXT:    %[[SQUARES:.*]] = nn.mul %[[DIFFERENCE]], %[[DIFFERENCE]] : tensor<4x3xf32>
// CHECK-NEXT:    %[[SUM:.*]] = nn.sum %[[SQUARES]] {dims = array<i64: 0>, keepdim = true} : (tensor<4x3xf32>) -> tensor<1x3xf32>
// CHECK-NEXT:    %[[REST:.*]] = nn.mean %[[DIFFERENCE]] {dims = array<i64: 0>, keepdim = true} : (tensor<4x3xf32>) -> tensor<1x3xf32>
// CHECK-NEXT:    %[[ZERO:.*]] = nn.constant {value = 0.0} : tensor<f32>
// CHECK-NEXT:    %[[COUNT:.*]] = nn.constant {value = 4.0} : tensor<f32>
// CHECK-NEXT:    %[[FINITE:.*]] = nn.isfinite %[[REST]]
// CHECK-NEXT:    %[[LEFT:.*]] = nn.where %[[FINITE]], %[[REST]], %[[ZERO]]
// CHECK-NEXT:    %[[CORRECTED:.*]] = nn.add %[[MEAN]], %[[LEFT]]
// CHECK-NEXT:    %[[WEIGHTED:.*]] = nn.mul %[[LEFT]], %[[COUNT]]
// CHECK-NEXT:    %[[SURPLUS:.*]] = nn.mul %[[LEFT]], %[[WEIGHTED]]
// CHECK-NEXT:    %[[SPREAD:.*]] = nn.sub %[[SUM]], %[[SURPLUS]]
// CHECK-NEXT:    %[[POSITIVE:.*]] = nn.relu %[[SPREAD]]
// CHECK-NEXT:    %[[DIVISOR:.*]] = nn.constant {value = 3.0} : tensor<f32>
// CHECK-NEXT:    %[[QUOTIENT:.*]] = nn.div %[[POSITIVE]], %[[DIVISOR]]
// CHECK-NEXT:    %[[VARIANCE:.*]] = nn.reshape %[[QUOTIENT]] : (tensor<1x3xf32>) -> tensor<3xf32>
// CHECK-NEXT:    %[[FLAT:.*]] = nn.reshape %[[CORRECTED]] : (tensor<1x3xf32>) -> tensor<3xf32>
// CHECK-NEXT:    func.return %[[VARIANCE]], %[[FLAT]]
// LOWER-LABEL: func.func @statistics
// LOWER:         kernel.reduce_sum
// LOWER-NOT:     nn.
func.func @statistics(%x: tensor<4x3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
  %variance, %mean = nn.var_mean %x {dims = array<i64: 0>, correction = 1.0} : (tensor<4x3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  func.return %variance, %mean : tensor<3xf32>, tensor<3xf32>
}

// -----

// What has a launch stays as it is.
// CHECK-LABEL: func.func @launch
// CHECK-NEXT:    nn.gelu %x : tensor<4xf32>
// LOWER-LABEL: func.func @launch
func.func @launch(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = nn.gelu %x : tensor<4xf32>
  func.return %y : tensor<4xf32>
}
