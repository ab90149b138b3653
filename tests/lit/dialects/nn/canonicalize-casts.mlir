// RUN: aicf-opt %s --canonicalize --split-input-file | filecheck %s

// A narrowing cast comes before a transpose, which then moves fewer bytes; a product reads the tensor as it lies.
// CHECK-LABEL: func.func @cast_of_transpose
// CHECK-NEXT:    %0 = nn.cast %b : (tensor<2x5x3x4xf32>) -> tensor<2x5x3x4xbf16>
// CHECK-NEXT:    %1 = nn.transpose %0 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x5x3x4xbf16>) -> tensor<2x3x5x4xbf16>
// CHECK-NEXT:    %2 = nn.matmul %a, %1 {trans_b = true}
func.func @cast_of_transpose(%a: tensor<2x3x6x4xbf16>, %b: tensor<2x5x3x4xf32>) -> tensor<2x3x6x5xbf16> {
  %0 = nn.transpose %b {perm = array<i64: 0, 2, 3, 1>} : (tensor<2x5x3x4xf32>) -> tensor<2x3x4x5xf32>
  %1 = nn.cast %0 : (tensor<2x3x4x5xf32>) -> tensor<2x3x4x5xbf16>
  %2 = nn.matmul %a, %1 : (tensor<2x3x6x4xbf16>, tensor<2x3x4x5xbf16>) -> tensor<2x3x6x5xbf16>
  func.return %2 : tensor<2x3x6x5xbf16>
}

// -----

// A product sees the swap through a widening cast. A transpose that others read stays in front of its cast.
// CHECK-LABEL: func.func @swap_before_cast
// CHECK:         %0 = nn.cast %b : (tensor<5x4xbf16>) -> tensor<5x4xf32>
// CHECK-NEXT:    %1 = nn.matmul %a, %0 {trans_b = true}
// CHECK-NEXT:    %2 = nn.transpose %c
// CHECK-NEXT:    %3 = nn.cast %2
// CHECK-NEXT:    func.return %1, %2, %3
func.func @swap_before_cast(%a: tensor<3x4xf32>, %b: tensor<5x4xbf16>, %c: tensor<2x3xf32>) -> (tensor<3x5xf32>, tensor<3x2xf32>, tensor<3x2xbf16>) {
  %0 = nn.transpose %b {perm = array<i64: 1, 0>} : (tensor<5x4xbf16>) -> tensor<4x5xbf16>
  %1 = nn.cast %0 : (tensor<4x5xbf16>) -> tensor<4x5xf32>
  %2 = nn.matmul %a, %1 : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
  %3 = nn.transpose %c {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %4 = nn.cast %3 : (tensor<3x2xf32>) -> tensor<3x2xbf16>
  func.return %2, %3, %4 : tensor<3x5xf32>, tensor<3x2xf32>, tensor<3x2xbf16>
}
