// RUN: aicf-opt %s -p "join-products{target=sm_90}" --split-input-file | filecheck %s
// RUN: aicf-opt %s --join-products --split-input-file | filecheck %s --check-prefix=CPU

// The gradient of a weight that is used twice is one product over the rows of both uses; so is the bias's one sum. The terms of
// the bias come first, so that its rows lie together.
// CHECK-LABEL: func.func @twice
// CHECK:         %[[A:.*]] = nn.concat %{{.*}}, %{{.*}} {dim = 0} : (tensor<4x3xf32>, tensor<6x3xf32>) -> tensor<10x3xf32>
// CHECK-NEXT:    %[[B:.*]] = nn.concat %{{.*}}, %{{.*}} {dim = 0} : (tensor<4x2xf32>, tensor<6x2xf32>) -> tensor<10x2xf32>
// CHECK-NEXT:    %[[DW:.*]] = nn.matmul %[[A]], %[[B]] {trans_a = true} : (tensor<10x3xf32>, tensor<10x2xf32>) -> tensor<3x2xf32>
// CHECK-NEXT:    %[[DB:.*]] = nn.sum %[[A]] {dims = array<i64: 0>} : (tensor<10x3xf32>) -> tensor<3xf32>
// CHECK-NEXT:    func.return %[[DW]], %[[DB]]
// CPU-LABEL: func.func @twice
// CPU-NOT:     nn.concat
func.func @twice(%g: tensor<4x3xf32>, %h: tensor<6x3xf32>, %x: tensor<4x2xf32>, %y: tensor<6x2xf32>) -> (tensor<3x2xf32>, tensor<3xf32>) {
  %0 = nn.tanh %g : tensor<4x3xf32>
  %1 = nn.tanh %h : tensor<6x3xf32>
  %2 = nn.tanh %x : tensor<4x2xf32>
  %3 = nn.tanh %y : tensor<6x2xf32>
  %4 = nn.matmul %0, %2 {trans_a = true} : (tensor<4x3xf32>, tensor<4x2xf32>) -> tensor<3x2xf32>
  %5 = nn.sum %0 {dims = array<i64: 0>} : (tensor<4x3xf32>) -> tensor<3xf32>
  %6 = nn.matmul %1, %3 {trans_a = true} : (tensor<6x3xf32>, tensor<6x2xf32>) -> tensor<3x2xf32>
  %7 = nn.sum %1 {dims = array<i64: 0>} : (tensor<6x3xf32>) -> tensor<3xf32>
  %dw = nn.add %4, %6 : tensor<3x2xf32>
  %db = nn.add %5, %7 : tensor<3xf32>
  func.return %dw, %db : tensor<3x2xf32>, tensor<3xf32>
}
