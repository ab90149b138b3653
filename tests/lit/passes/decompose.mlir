// RUN: aicf-opt %s --decompose --split-input-file | filecheck %s
// RUN: aicf-opt %s --decompose --lower --split-input-file | filecheck %s --check-prefix=LOWER

// An op without a launch is written by ops that have one; both results are taken over. The mean and
// the sum of squares are corrected by the mean of the differences from a number near the mean.
// CHECK-LABEL: func.func @statistics
// CHECK-NEXT:    %[[MEAN:.*]] = nn.mean %x {dims = array<i64: 0>, keepdim = true} : (tensor<4x3xf32>) -> tensor<1x3xf32>
// CHECK-NEXT:    %[[ZERO:.*]] = nn.constant {value = 0.0} : tensor<f32>
// CHECK-NEXT:    %[[COUNT:.*]] = nn.constant {value = 4.0} : tensor<f32>
// CHECK-NEXT:    %[[FINITE:.*]] = nn.isfinite %[[MEAN]]
// CHECK-NEXT:    %[[NEAR:.*]] = nn.where %[[FINITE]], %[[MEAN]], %[[ZERO]]
// CHECK-NEXT:    %[[DIFFERENCE:.*]] = nn.sub %x, %[[NEAR]] : (tensor<4x3xf32>, tensor<1x3xf32>) -> tensor<4x3xf32>
// CHECK-NEXT:    %[[SQUARES:.*]] = nn.mul %[[DIFFERENCE]], %[[DIFFERENCE]] : tensor<4x3xf32>
// CHECK-NEXT:    %[[SUM:.*]] = nn.sum %[[SQUARES]] {dims = array<i64: 0>, keepdim = true} : (tensor<4x3xf32>) -> tensor<1x3xf32>
// CHECK-NEXT:    %[[REST:.*]] = nn.mean %[[DIFFERENCE]] {dims = array<i64: 0>, keepdim = true} : (tensor<4x3xf32>) -> tensor<1x3xf32>
// CHECK-NEXT:    %[[CORRECTED:.*]] = nn.add %[[NEAR]], %[[REST]]
// CHECK-NEXT:    %[[WEIGHTED:.*]] = nn.mul %[[REST]], %[[COUNT]]
// CHECK-NEXT:    %[[SURPLUS:.*]] = nn.mul %[[REST]], %[[WEIGHTED]]
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

// Of many rows the mean of the first thirty-second part is near enough, here of the first quarter of the first of 8 images.
// CHECK-LABEL: func.func @sampled
// CHECK-NEXT:    %[[IMAGE:.*]], %{{.*}} = nn.split %x {dim = 0, sizes = array<i64: 1, 7>}
// CHECK:         %[[ROWS:.*]], %{{.*}} = nn.split %[[IMAGE]] {dim = 1, sizes = array<i64: 8, 24>}
// CHECK:         nn.mean %[[ROWS]] {dims = array<i64: 0, 1>, keepdim = true} : (tensor<1x8x8192xf32>)
// CHECK:         nn.sub %x,
func.func @sampled(%x: tensor<8x32x8192xf32>) -> (tensor<8192xf32>, tensor<8192xf32>) {
  %variance, %mean = nn.var_mean %x {dims = array<i64: 0, 1>, correction = 0.0} : (tensor<8x32x8192xf32>) -> (tensor<8192xf32>, tensor<8192xf32>)
  func.return %variance, %mean : tensor<8192xf32>, tensor<8192xf32>
}

// -----

// Rows that lie side by side are read once anyway.
// CHECK-LABEL: func.func @side_by_side
// CHECK-NEXT:    nn.mean %x
func.func @side_by_side(%x: tensor<8x32x8192xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %variance, %mean = nn.var_mean %x {dims = array<i64: 1, 2>, correction = 0.0} : (tensor<8x32x8192xf32>) -> (tensor<8xf32>, tensor<8xf32>)
  func.return %variance, %mean : tensor<8xf32>, tensor<8xf32>
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
