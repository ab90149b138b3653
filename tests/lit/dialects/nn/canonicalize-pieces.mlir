// RUN: aicf-opt %s --canonicalize --dce --split-input-file | filecheck %s

// A rotary embedding, rounded to bf16: each half of the result is a function of both halves, and nothing else is joined.
// CHECK-LABEL: func.func @rotary
// CHECK-NOT:     nn.concat
// CHECK:         %x1, %x2 = nn.split %x
// CHECK:         nn.neg %x2
// CHECK:         nn.split %cos {dim = 1, sizes = array<i64: 8, 8>}
// CHECK:         %11 = nn.add %9, %3 : tensor<3x5x8xf32>
// CHECK-NEXT:    %12 = nn.add %10, %4 : tensor<3x5x8xf32>
// CHECK-NEXT:    %13 = nn.cast %11 : (tensor<3x5x8xf32>) -> tensor<3x5x8xbf16>
// CHECK-NEXT:    %14 = nn.cast %12 : (tensor<3x5x8xf32>) -> tensor<3x5x8xbf16>
// CHECK-NEXT:    %15 = nn.concat %13, %14 {dim = 2} : (tensor<3x5x8xbf16>, tensor<3x5x8xbf16>) -> tensor<3x5x16xbf16>
// CHECK-NEXT:    func.return %15
func.func @rotary(%x: tensor<3x5x16xf32>, %cos: tensor<5x16xf32>, %sin: tensor<1x16xf32>) -> tensor<3x5x16xbf16> {
  %x1, %x2 = nn.split %x {dim = 2, sizes = array<i64: 8, 8>} : (tensor<3x5x16xf32>) -> (tensor<3x5x8xf32>, tensor<3x5x8xf32>)
  %0 = nn.neg %x2 : tensor<3x5x8xf32>
  %turned = nn.concat %0, %x1 {dim = 2} : (tensor<3x5x8xf32>, tensor<3x5x8xf32>) -> tensor<3x5x16xf32>
  %1 = nn.mul %x, %cos : (tensor<3x5x16xf32>, tensor<5x16xf32>) -> tensor<3x5x16xf32>
  %2 = nn.mul %turned, %sin : (tensor<3x5x16xf32>, tensor<1x16xf32>) -> tensor<3x5x16xf32>
  %3 = nn.add %1, %2 : tensor<3x5x16xf32>
  %4 = nn.cast %3 : (tensor<3x5x16xf32>) -> tensor<3x5x16xbf16>
  func.return %4 : tensor<3x5x16xbf16>
}

// -----

// What is joined along the same dimension once more is joined once.
// CHECK-LABEL: func.func @nested
// CHECK-NEXT:    %0 = nn.concat %a, %b, %c {dim = 0}
// CHECK-NEXT:    func.return %0
func.func @nested(%a: tensor<1x4xf32>, %b: tensor<2x4xf32>, %c: tensor<3x4xf32>) -> tensor<6x4xf32> {
  %0 = nn.concat %a, %b {dim = 0} : (tensor<1x4xf32>, tensor<2x4xf32>) -> tensor<3x4xf32>
  %1 = nn.concat %0, %c {dim = 0} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<6x4xf32>
  func.return %1 : tensor<6x4xf32>
}

// -----

// Left alone: arguments, which are joined by a copy all the same; narrow pieces; and a concat with two readers.
// CHECK-LABEL: func.func @kept
// CHECK:         %arguments = nn.concat
// CHECK:         nn.exp %arguments
// CHECK:         %narrow = nn.concat
// CHECK:         nn.exp %narrow
// CHECK:         %twice = nn.concat
// CHECK:         nn.exp %twice
func.func @kept(%a: tensor<2x8xf32>, %b: tensor<2x8xf32>) -> (tensor<2x16xf32>, tensor<2x16xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %arguments = nn.concat %a, %b {dim = 1} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x16xf32>
  %0 = nn.exp %arguments : tensor<2x16xf32>
  %few, %more = nn.split %a {dim = 1, sizes = array<i64: 2, 6>} : (tensor<2x8xf32>) -> (tensor<2x2xf32>, tensor<2x6xf32>)
  %1 = nn.neg %b : tensor<2x8xf32>
  %narrow = nn.concat %more, %few, %1 {dim = 1} : (tensor<2x6xf32>, tensor<2x2xf32>, tensor<2x8xf32>) -> tensor<2x16xf32>
  %2 = nn.exp %narrow : tensor<2x16xf32>
  %3 = nn.sin %b : tensor<2x8xf32>
  %twice = nn.concat %3, %1 {dim = 0} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %4 = nn.exp %twice : tensor<4x8xf32>
  func.return %0, %2, %4, %twice : tensor<2x16xf32>, tensor<2x16xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}
