// RUN: aicf-opt %s --canonicalize | filecheck %s

// CHECK-LABEL: func.func @identities
// CHECK-NEXT:      tensor<4x8xf32>, tensor<4x8xf32>) {
// CHECK-NEXT:    func.return %x, %x, %x, %x, %x, %x
func.func @identities(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = nn.reshape %x : tensor<4x8xf32>
  %1 = nn.transpose %x {perm = array<i64: 0, 1>} : tensor<4x8xf32>
  %2 = nn.broadcast_to %x : tensor<4x8xf32>
  %3 = nn.cast %x : tensor<4x8xf32>
  %4 = nn.sum %x {dims = array<i64>} : tensor<4x8xf32>
  %5 = nn.mean %x {dims = array<i64>, keepdim = true} : tensor<4x8xf32>
  func.return %0, %1, %2, %3, %4, %5 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// CHECK-LABEL: func.func @chains
// CHECK-NEXT:      tensor<2x3x4x8xf32>, tensor<1x4x8xf32>) {
// CHECK-NEXT:    %r = nn.reshape %x : (tensor<1x4x8xf32>) -> tensor<2x16xf32>
// CHECK-NEXT:    %t = nn.transpose %x {perm = array<i64: 1, 2, 0>} : (tensor<1x4x8xf32>) -> tensor<4x8x1xf32>
// CHECK-NEXT:    %b = nn.broadcast_to %x : (tensor<1x4x8xf32>) -> tensor<2x3x4x8xf32>
// CHECK-NEXT:    func.return %r, %t, %x, %b, %x
func.func @chains(%x: tensor<1x4x8xf32>) -> (tensor<2x16xf32>, tensor<4x8x1xf32>, tensor<1x4x8xf32>, tensor<2x3x4x8xf32>, tensor<1x4x8xf32>) {
  %0 = nn.reshape %x : (tensor<1x4x8xf32>) -> tensor<32xf32>
  %r = nn.reshape %0 : (tensor<32xf32>) -> tensor<2x16xf32>
  %1 = nn.transpose %x {perm = array<i64: 2, 0, 1>} : (tensor<1x4x8xf32>) -> tensor<8x1x4xf32>
  %t = nn.transpose %1 {perm = array<i64: 2, 0, 1>} : (tensor<8x1x4xf32>) -> tensor<4x8x1xf32>
  %2 = nn.transpose %1 {perm = array<i64: 1, 2, 0>} : (tensor<8x1x4xf32>) -> tensor<1x4x8xf32>
  %3 = nn.broadcast_to %x : (tensor<1x4x8xf32>) -> tensor<3x4x8xf32>
  %b = nn.broadcast_to %3 : (tensor<3x4x8xf32>) -> tensor<2x3x4x8xf32>
  %4 = nn.neg %x : tensor<1x4x8xf32>
  %5 = nn.neg %4 : tensor<1x4x8xf32>
  func.return %r, %t, %2, %b, %5 : tensor<2x16xf32>, tensor<4x8x1xf32>, tensor<1x4x8xf32>, tensor<2x3x4x8xf32>, tensor<1x4x8xf32>
}

// Casts round; x + 0 turns -0.0 into 0.0; a sum of equal numbers rounds more often than a product.
// CHECK-LABEL: func.func @kept
// CHECK:         nn.cast %x
// CHECK:         nn.cast
// CHECK:         nn.add
// CHECK:         nn.broadcast_to
// CHECK:         nn.sum
func.func @kept(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = nn.cast %x : (tensor<4xf32>) -> tensor<4xbf16>
  %1 = nn.cast %0 : (tensor<4xbf16>) -> tensor<4xf32>
  %2 = nn.constant {value = 0.0} : tensor<f32>
  %3 = nn.add %x, %2 : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %4 = nn.broadcast_to %x : (tensor<4xf32>) -> tensor<3x4xf32>
  %5 = nn.sum %4 {dims = array<i64: 0>} : (tensor<3x4xf32>) -> tensor<4xf32>
  func.return %1, %3, %5 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// A product that stretches y stays, and so does the quotient of one.
// CHECK-LABEL: func.func @one
// CHECK-NEXT:      tensor<4x8xf32>, tensor<4x8xf32>) {
// CHECK-NEXT:    %one = nn.constant {value = 1.0} : tensor<f32>
// CHECK-NEXT:    %ones = nn.constant {value = 1.0} : tensor<4x8xf32>
// CHECK-NEXT:    %stretched = nn.mul %y, %ones
// CHECK-NEXT:    %inverse = nn.div %one, %x
// CHECK-NEXT:    func.return %x, %x, %x, %stretched, %inverse
func.func @one(%x: tensor<4x8xf32>, %y: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %one = nn.constant {value = 1.0} : tensor<f32>
  %ones = nn.constant {value = 1.0} : tensor<4x8xf32>
  %0 = nn.mul %x, %one : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %1 = nn.mul %one, %x : (tensor<f32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = nn.div %x, %ones : tensor<4x8xf32>
  %stretched = nn.mul %y, %ones : (tensor<8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %inverse = nn.div %one, %x : (tensor<f32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %0, %1, %2, %stretched, %inverse : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// CHECK-LABEL: func.func @constants
// CHECK-NEXT:    %square = nn.constant {value = 0.5} : tensor<2x2xf32>
// CHECK-NEXT:    func.return %square
func.func @constants() -> tensor<2x2xf32> {
  %0 = nn.constant {value = 0.5} : tensor<4xf32>
  %square = nn.reshape %0 : (tensor<4xf32>) -> tensor<2x2xf32>
  func.return %square : tensor<2x2xf32>
}

// Of two broadcasts that only together give the shape, one stays.
// CHECK-LABEL: func.func @broadcasts
// CHECK-NEXT:    %sum = nn.add %x, %b : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:    %difference = nn.sub %b, %x : (tensor<8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:    %right = nn.broadcast_to %b : (tensor<8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:    %product = nn.mul %b, %right : (tensor<8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:    func.return %sum, %difference, %product
func.func @broadcasts(%x: tensor<4x8xf32>, %b: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %left = nn.broadcast_to %b : (tensor<8xf32>) -> tensor<4x8xf32>
  %sum = nn.add %x, %left : tensor<4x8xf32>
  %difference = nn.sub %left, %x : tensor<4x8xf32>
  %right = nn.broadcast_to %b : (tensor<8xf32>) -> tensor<4x8xf32>
  %product = nn.mul %left, %right : tensor<4x8xf32>
  func.return %sum, %difference, %product : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// CHECK-LABEL: func.func @negations
// CHECK-NEXT:      tensor<4xf32>) {
// CHECK-NEXT:    %minus = nn.neg %y
// CHECK-NEXT:    %0 = nn.sub %x, %y
// CHECK-NEXT:    %1 = nn.sub %x, %y
// CHECK-NEXT:    %2 = nn.add %x, %y
// CHECK-NEXT:    %3 = nn.sub %minus, %x
func.func @negations(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %minus = nn.neg %y : tensor<4xf32>
  %0 = nn.add %x, %minus : tensor<4xf32>
  %1 = nn.add %minus, %x : tensor<4xf32>
  %2 = nn.sub %x, %minus : tensor<4xf32>
  %3 = nn.sub %minus, %x : tensor<4xf32>
  func.return %0, %1, %2, %3 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @matmul_of_transposes
// CHECK-NEXT:      tensor<4x2xf32>) {
// CHECK-NEXT:    %0 = nn.matmul %a, %b {trans_b = true} : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
// CHECK-NEXT:    %1 = nn.matmul %a, %a {trans_a = true} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
// CHECK-NEXT:    %2 = nn.matmul %a, %b {trans_b = true} : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
// CHECK-NEXT:    func.return %0, %1, %2
func.func @matmul_of_transposes(%a: tensor<4x8xf32>, %b: tensor<2x8xf32>) -> (tensor<4x2xf32>, tensor<8x8xf32>, tensor<4x2xf32>) {
  %at = nn.transpose %a {perm = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %bt = nn.transpose %b {perm = array<i64: 1, 0>} : (tensor<2x8xf32>) -> tensor<8x2xf32>
  %0 = nn.matmul %a, %bt : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %1 = nn.matmul %at, %at {trans_b = true} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x8xf32>
  %2 = nn.matmul %at, %bt {trans_a = true} : (tensor<8x4xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  func.return %0, %1, %2 : tensor<4x2xf32>, tensor<8x8xf32>, tensor<4x2xf32>
}

// A swap of the last two dimensions folds; of other transposes it leaves what moves the others.
// CHECK-LABEL: func.func @batched_matmul_of_transposes
// CHECK-NEXT:    %swapped = nn.matmul %a, %a {trans_b = true} : (tensor<3x4x8xf32>, tensor<3x4x8xf32>) -> tensor<3x4x4xf32>
// CHECK-NEXT:    %moved = nn.transpose %a {perm = array<i64: 1, 0, 2>} : (tensor<3x4x8xf32>) -> tensor<4x3x8xf32>
// CHECK-NEXT:    %turned = nn.transpose %a {perm = array<i64: 1, 0, 2>} : (tensor<3x4x8xf32>) -> tensor<4x3x8xf32>
// CHECK-NEXT:    nn.matmul %turned, %moved {trans_a = true}
func.func @batched_matmul_of_transposes(%a: tensor<3x4x8xf32>) -> (tensor<3x4x4xf32>, tensor<4x8x8xf32>) {
  %0 = nn.transpose %a {perm = array<i64: 0, 2, 1>} : (tensor<3x4x8xf32>) -> tensor<3x8x4xf32>
  %swapped = nn.matmul %a, %0 : (tensor<3x4x8xf32>, tensor<3x8x4xf32>) -> tensor<3x4x4xf32>
  %turned = nn.transpose %a {perm = array<i64: 1, 2, 0>} : (tensor<3x4x8xf32>) -> tensor<4x8x3xf32>
  %moved = nn.transpose %a {perm = array<i64: 1, 0, 2>} : (tensor<3x4x8xf32>) -> tensor<4x3x8xf32>
  %1 = nn.matmul %turned, %moved : (tensor<4x8x3xf32>, tensor<4x3x8xf32>) -> tensor<4x8x8xf32>
  func.return %swapped, %1 : tensor<3x4x4xf32>, tensor<4x8x8xf32>
}

// What a product may round it still may.
// CHECK-LABEL: func.func @tf32
// CHECK-NEXT:    %0 = nn.matmul %a, %b {trans_b = true, allow_tf32 = true}
// CHECK-NEXT:    %1 = nn.matmul %a, %a {trans_a = true, allow_tf32 = true}
// CHECK-NEXT:    %2 = nn.matmul %b, %a {trans_b = true, allow_tf32 = true}
// CHECK-NEXT:    func.return %0, %1, %2
func.func @tf32(%a: tensor<4x8xf32>, %b: tensor<2x8xf32>) -> (tensor<4x2xf32>, tensor<8x8xf32>, tensor<2x4xf32>) {
  %at = nn.transpose %a {perm = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %bt = nn.transpose %b {perm = array<i64: 1, 0>} : (tensor<2x8xf32>) -> tensor<8x2xf32>
  %0 = nn.matmul %a, %bt {allow_tf32 = true} : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %1 = nn.linear %at, %at {allow_tf32 = true} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x8xf32>
  %turned = nn.matmul %a, %b {trans_b = true, allow_tf32 = true} : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
  %2 = nn.transpose %turned {perm = array<i64: 1, 0>} : (tensor<4x2xf32>) -> tensor<2x4xf32>
  func.return %0, %1, %2 : tensor<4x2xf32>, tensor<8x8xf32>, tensor<2x4xf32>
}

// A product with another user is not computed twice.
// CHECK-LABEL: func.func @transpose_of_matmul
// CHECK-NEXT:      tensor<2x4xf32>) {
// CHECK-NEXT:    %once = nn.matmul %b, %a {trans_a = true, trans_b = true} : (tensor<8x2xf32>, tensor<4x8xf32>) -> tensor<2x4xf32>
// CHECK-NEXT:    %twice = nn.matmul %a, %b
// CHECK-NEXT:    %turned = nn.transpose %twice
func.func @transpose_of_matmul(%a: tensor<4x8xf32>, %b: tensor<8x2xf32>) -> (tensor<2x4xf32>, tensor<4x2xf32>, tensor<2x4xf32>) {
  %0 = nn.matmul %a, %b : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %once = nn.transpose %0 {perm = array<i64: 1, 0>} : (tensor<4x2xf32>) -> tensor<2x4xf32>
  %twice = nn.matmul %a, %b : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %turned = nn.transpose %twice {perm = array<i64: 1, 0>} : (tensor<4x2xf32>) -> tensor<2x4xf32>
  func.return %once, %twice, %turned : tensor<2x4xf32>, tensor<4x2xf32>, tensor<2x4xf32>
}

// CHECK-LABEL: func.func @linear_of_transposed_weight
// CHECK-NEXT:    %y = nn.matmul %x, %w : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
// CHECK-NEXT:    func.return %y
func.func @linear_of_transposed_weight(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>) -> tensor<4x2xf32> {
  %0 = nn.transpose %w {perm = array<i64: 1, 0>} : (tensor<8x2xf32>) -> tensor<2x8xf32>
  %y = nn.linear %x, %0 : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>
  func.return %y : tensor<4x2xf32>
}

// What is cut as it was joined, or joined as it was cut.
// CHECK-LABEL: func.func @split_and_concat
// CHECK-NEXT:      tensor<4x5xf32>) {
// CHECK-NEXT:    %other, %parts = nn.split %x {dim = 1, sizes = array<i64: 2, 3>}
// CHECK:         %turned = nn.concat %parts, %other {dim = 1}
// CHECK-NEXT:    func.return %a, %b, %x, %x, %turned
func.func @split_and_concat(%a: tensor<4x2xf32>, %b: tensor<4x3xf32>, %x: tensor<4x5xf32>) -> (tensor<4x2xf32>, tensor<4x3xf32>, tensor<4x5xf32>, tensor<4x5xf32>, tensor<4x5xf32>) {
  %joined = nn.concat %a, %b {dim = 1} : (tensor<4x2xf32>, tensor<4x3xf32>) -> tensor<4x5xf32>
  %0, %1 = nn.split %joined {dim = 1, sizes = array<i64: 2, 3>} : (tensor<4x5xf32>) -> (tensor<4x2xf32>, tensor<4x3xf32>)
  %2, %3 = nn.split %x {dim = 1, sizes = array<i64: 2, 3>} : (tensor<4x5xf32>) -> (tensor<4x2xf32>, tensor<4x3xf32>)
  %4 = nn.concat %2, %3 {dim = 1} : (tensor<4x2xf32>, tensor<4x3xf32>) -> tensor<4x5xf32>
  %5 = nn.split %x {dim = 0, sizes = array<i64: 4>} : tensor<4x5xf32>
  %other, %parts = nn.split %x {dim = 1, sizes = array<i64: 2, 3>} : (tensor<4x5xf32>) -> (tensor<4x2xf32>, tensor<4x3xf32>)
  %turned = nn.concat %parts, %other {dim = 1} : (tensor<4x3xf32>, tensor<4x2xf32>) -> tensor<4x5xf32>
  func.return %0, %1, %4, %5, %turned : tensor<4x2xf32>, tensor<4x3xf32>, tensor<4x5xf32>, tensor<4x5xf32>, tensor<4x5xf32>
}

// What is turned and then reduced is reduced where it is; what is left is turned. Not if another reads what is turned.
// CHECK-LABEL: func.func @reduced
// CHECK:         %max = nn.amax %x {dims = array<i64: 0, 1>} : (tensor<3x4x5xf32>) -> tensor<5xf32>
// CHECK-NEXT:    %sum = nn.sum %x {dims = array<i64: 1>, keepdim = true} : (tensor<3x4x5xf32>) -> tensor<3x1x5xf32>
// CHECK-NEXT:    nn.transpose %sum {perm = array<i64: 2, 0, 1>} : (tensor<3x1x5xf32>) -> tensor<5x3x1xf32>
// CHECK-NEXT:    %mean = nn.mean %x {dims = array<i64: 1>} : (tensor<3x4x5xf32>) -> tensor<3x5xf32>
// CHECK-NEXT:    nn.transpose %mean {perm = array<i64: 1, 0>} : (tensor<3x5xf32>) -> tensor<5x3xf32>
// CHECK-NEXT:    %twice = nn.transpose %x
// CHECK-NEXT:    %place = nn.argmax %twice
func.func @reduced(%x: tensor<3x4x5xf32>) -> (tensor<5xf32>, tensor<5x3x1xf32>, tensor<5x3xf32>, tensor<5x3xi64>, tensor<5x3x4xf32>) {
  %0 = nn.transpose %x {perm = array<i64: 2, 0, 1>} : (tensor<3x4x5xf32>) -> tensor<5x3x4xf32>
  %max = nn.amax %0 {dims = array<i64: 1, 2>} : (tensor<5x3x4xf32>) -> tensor<5xf32>
  %1 = nn.transpose %x {perm = array<i64: 2, 0, 1>} : (tensor<3x4x5xf32>) -> tensor<5x3x4xf32>
  %sum = nn.sum %1 {dims = array<i64: 2>, keepdim = true} : (tensor<5x3x4xf32>) -> tensor<5x3x1xf32>
  %2 = nn.transpose %x {perm = array<i64: 2, 0, 1>} : (tensor<3x4x5xf32>) -> tensor<5x3x4xf32>
  %mean = nn.mean %2 {dims = array<i64: 2>} : (tensor<5x3x4xf32>) -> tensor<5x3xf32>
  %twice = nn.transpose %x {perm = array<i64: 2, 0, 1>} : (tensor<3x4x5xf32>) -> tensor<5x3x4xf32>
  %place = nn.argmax %twice {dims = array<i64: 2>} : (tensor<5x3x4xf32>) -> tensor<5x3xi64>
  func.return %max, %sum, %mean, %place, %twice : tensor<5xf32>, tensor<5x3x1xf32>, tensor<5x3xf32>, tensor<5x3xi64>, tensor<5x3x4xf32>
}

// An exact cast in front of another; a cast to fewer bits is taken into what only it reads, and meets the exact one there.
// CHECK-LABEL: func.func @casts
// CHECK-NEXT:    %0 = nn.cast %x : (tensor<4x3xf32>) -> tensor<4x3xbf16>
// CHECK-NEXT:    %y = nn.concat %h, %0 {dim = 1} : (tensor<4x2xbf16>, tensor<4x3xbf16>) -> tensor<4x5xbf16>
// CHECK-NEXT:    func.return %y
func.func @casts(%h: tensor<4x2xbf16>, %x: tensor<4x3xf32>) -> tensor<4x5xbf16> {
  %wide = nn.cast %h : (tensor<4x2xbf16>) -> tensor<4x2xf32>
  %joined = nn.concat %wide, %x {dim = 1} : (tensor<4x2xf32>, tensor<4x3xf32>) -> tensor<4x5xf32>
  %y = nn.cast %joined : (tensor<4x5xf32>) -> tensor<4x5xbf16>
  func.return %y : tensor<4x5xbf16>
}
