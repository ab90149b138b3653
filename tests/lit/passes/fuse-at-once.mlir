// A launch that is marked stays where it stands, however well it would fit into what reads it; lowering hands the mark on.
// RUN: aicf-opt %s --lower --fuse | filecheck %s
// RUN: sed s/{aicf.at_once}// %s | aicf-opt --lower --fuse | filecheck %s --check-prefix=UNMARKED

// CHECK:      %sum = kernel.add x(%a) y(%b) {aicf.at_once} : tensor<4xf32>
// CHECK-NEXT: %y = kernel.gemm
// CHECK-NEXT: %half = kernel.map x(%sum, %c)
// UNMARKED-NOT: kernel.add
// UNMARKED:   kernel.map x(%a, %b, %c)
func.func @f(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: tensor<4xf32>, %d: tensor<4x4xf32>) -> (tensor<4xf32>, tensor<4x4xf32>) {
  %sum = nn.add %a, %b {aicf.at_once} : tensor<4xf32>
  %y = nn.matmul %d, %d : tensor<4x4xf32>
  %next = nn.add %sum, %c : tensor<4xf32>
  %half = nn.relu %next : tensor<4xf32>
  func.return %half, %y : tensor<4xf32>, tensor<4x4xf32>
}
