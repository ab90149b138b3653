// RUN: aicf-opt %s --canonicalize --split-input-file | filecheck %s

// As models of the package transformers repeat keys and values, here with a cast of the keys: each is read once.
// CHECK-LABEL: func.func @groups
// CHECK-NOT:     nn.broadcast_to
// CHECK:         %narrow = nn.cast %k : (tensor<2x2x5x4xf32>) -> tensor<2x2x5x4xbf16>
// CHECK-NEXT:    %out, %largest, %total = nn.attention %q, %narrow, %v, %mask {causal = true, scale = 0.5}
// CHECK-NEXT:      : (tensor<2x6x3x4xbf16>, tensor<2x2x5x4xbf16>, tensor<2x2x5x4xbf16>, tensor<2x1x3x5xi1>)
func.func @groups(%q: tensor<2x6x3x4xbf16>, %k: tensor<2x2x5x4xf32>, %v: tensor<2x2x5x4xbf16>, %mask: tensor<2x1x3x5xi1>) -> tensor<2x6x3x4xbf16> {
  %0 = nn.reshape %k : (tensor<2x2x5x4xf32>) -> tensor<2x2x1x5x4xf32>
  %1 = nn.broadcast_to %0 : (tensor<2x2x1x5x4xf32>) -> tensor<2x2x3x5x4xf32>
  %2 = nn.reshape %1 : (tensor<2x2x3x5x4xf32>) -> tensor<2x6x5x4xf32>
  %narrow = nn.cast %2 : (tensor<2x6x5x4xf32>) -> tensor<2x6x5x4xbf16>
  %3 = nn.reshape %v : (tensor<2x2x5x4xbf16>) -> tensor<2x2x1x5x4xbf16>
  %4 = nn.broadcast_to %3 : (tensor<2x2x1x5x4xbf16>) -> tensor<2x2x3x5x4xbf16>
  %5 = nn.reshape %4 : (tensor<2x2x3x5x4xbf16>) -> tensor<2x6x5x4xbf16>
  %out, %largest, %total = nn.attention %q, %narrow, %5, %mask {causal = true, scale = 0.5} : (tensor<2x6x3x4xbf16>, tensor<2x6x5x4xbf16>, tensor<2x6x5x4xbf16>, tensor<2x1x3x5xi1>) -> (tensor<2x6x3x4xbf16>, tensor<2x6x3xf32>, tensor<2x6x3xf32>)
  func.return %out : tensor<2x6x3x4xbf16>
}

// -----

// One head for all queries, of values for all sequences too: what repeats the batch stays. The wide keys have another reader.
// CHECK-LABEL: func.func @multi_query
// CHECK:         %keys = nn.broadcast_to %k
// CHECK-NEXT:    %values = nn.broadcast_to %v : (tensor<5x4xf32>) -> tensor<2x1x5x4xf32>
// CHECK-NEXT:    %out, %largest, %total = nn.attention_dropout %q, %k, %values, %random
// CHECK:         func.return %out, %keys
func.func @multi_query(%q: tensor<2x6x3x4xf32>, %k: tensor<2x1x5x4xf32>, %v: tensor<5x4xf32>, %random: tensor<2xi64>) -> (tensor<2x6x3x4xf32>, tensor<2x6x5x4xf32>) {
  %keys = nn.broadcast_to %k : (tensor<2x1x5x4xf32>) -> tensor<2x6x5x4xf32>
  %values = nn.broadcast_to %v : (tensor<5x4xf32>) -> tensor<2x6x5x4xf32>
  %out, %largest, %total = nn.attention_dropout %q, %keys, %values, %random {scale = 0.5, p = 0.1, site = 1} : (tensor<2x6x3x4xf32>, tensor<2x6x5x4xf32>, tensor<2x6x5x4xf32>, tensor<2xi64>) -> (tensor<2x6x3x4xf32>, tensor<2x6x3xf32>, tensor<2x6x3xf32>)
  func.return %out, %keys : tensor<2x6x3x4xf32>, tensor<2x6x5x4xf32>
}

// -----

// Keys are repeated in front of a transpose, by 4; values by 2: both by 2.
// CHECK-LABEL: func.func @common_factor
// CHECK:         nn.broadcast_to {{.*}} -> tensor<2x5x2x2x4xf32>
// CHECK:         nn.transpose {{.*}} -> tensor<2x4x5x4xf32>
// CHECK:         nn.attention {{.*}}, %v
func.func @common_factor(%q: tensor<2x8x3x4xf32>, %k: tensor<2x5x2x4xf32>, %v: tensor<2x4x5x4xf32>) -> tensor<2x8x3x4xf32> {
  %0 = nn.reshape %k : (tensor<2x5x2x4xf32>) -> tensor<2x5x2x1x4xf32>
  %1 = nn.broadcast_to %0 : (tensor<2x5x2x1x4xf32>) -> tensor<2x5x2x4x4xf32>
  %2 = nn.reshape %1 : (tensor<2x5x2x4x4xf32>) -> tensor<2x5x8x4xf32>
  %3 = nn.transpose %2 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x5x8x4xf32>) -> tensor<2x8x5x4xf32>
  %4 = nn.reshape %v : (tensor<2x4x5x4xf32>) -> tensor<2x4x1x5x4xf32>
  %5 = nn.broadcast_to %4 : (tensor<2x4x1x5x4xf32>) -> tensor<2x4x2x5x4xf32>
  %6 = nn.reshape %5 : (tensor<2x4x2x5x4xf32>) -> tensor<2x8x5x4xf32>
  %out, %largest, %total = nn.attention %q, %3, %6 {scale = 0.5} : (tensor<2x8x3x4xf32>, tensor<2x8x5x4xf32>, tensor<2x8x5x4xf32>) -> (tensor<2x8x3x4xf32>, tensor<2x8x3xf32>, tensor<2x8x3xf32>)
  func.return %out : tensor<2x8x3x4xf32>
}

// -----

// Left alone: all heads once after the other, which are no neighbours; and keys without their values.
// CHECK-LABEL: func.func @kept
// CHECK:         %keys = nn.reshape
// CHECK:         %values = nn.reshape
// CHECK:         nn.attention %q, %keys, %keys
// CHECK:         nn.attention %q, %values, %v
func.func @kept(%q: tensor<2x6x3x4xf32>, %k: tensor<2x2x5x4xf32>, %v: tensor<2x6x5x4xf32>) -> (tensor<2x6x3x4xf32>, tensor<2x6x3x4xf32>) {
  %0 = nn.reshape %k : (tensor<2x2x5x4xf32>) -> tensor<2x1x2x5x4xf32>
  %1 = nn.broadcast_to %0 : (tensor<2x1x2x5x4xf32>) -> tensor<2x3x2x5x4xf32>
  %keys = nn.reshape %1 : (tensor<2x3x2x5x4xf32>) -> tensor<2x6x5x4xf32>
  %2 = nn.reshape %k : (tensor<2x2x5x4xf32>) -> tensor<2x2x1x5x4xf32>
  %3 = nn.broadcast_to %2 : (tensor<2x2x1x5x4xf32>) -> tensor<2x2x3x5x4xf32>
  %values = nn.reshape %3 : (tensor<2x2x3x5x4xf32>) -> tensor<2x6x5x4xf32>
  %out, %largest, %total = nn.attention %q, %keys, %keys {scale = 0.5} : (tensor<2x6x3x4xf32>, tensor<2x6x5x4xf32>, tensor<2x6x5x4xf32>) -> (tensor<2x6x3x4xf32>, tensor<2x6x3xf32>, tensor<2x6x3xf32>)
  %out2, %largest2, %total2 = nn.attention %q, %values, %v {scale = 0.5} : (tensor<2x6x3x4xf32>, tensor<2x6x5x4xf32>, tensor<2x6x5x4xf32>) -> (tensor<2x6x3x4xf32>, tensor<2x6x3xf32>, tensor<2x6x3xf32>)
  func.return %out, %out2 : tensor<2x6x3x4xf32>, tensor<2x6x3x4xf32>
}

// -----

// Left alone too: an attention whose gradient has the same operands.
// CHECK-LABEL: func.func @differentiated
// CHECK:         nn.attention %q, %keys, %keys
// CHECK:         nn.attention_grad
func.func @differentiated(%q: tensor<2x6x3x4xf32>, %k: tensor<2x1x5x4xf32>) -> tensor<2x6x3x4xf32> {
  %keys = nn.broadcast_to %k : (tensor<2x1x5x4xf32>) -> tensor<2x6x5x4xf32>
  %out, %largest, %total = nn.attention %q, %keys, %keys {scale = 0.5} : (tensor<2x6x3x4xf32>, tensor<2x6x5x4xf32>, tensor<2x6x5x4xf32>) -> (tensor<2x6x3x4xf32>, tensor<2x6x3xf32>, tensor<2x6x3xf32>)
  %dq, %dk, %dv = nn.attention_grad %out, %q, %keys, %keys, %out, %largest, %total {scale = 0.5} : (tensor<2x6x3x4xf32>, tensor<2x6x3x4xf32>, tensor<2x6x5x4xf32>, tensor<2x6x5x4xf32>, tensor<2x6x3x4xf32>, tensor<2x6x3xf32>, tensor<2x6x3xf32>) -> (tensor<2x6x3x4xf32>, tensor<2x6x5x4xf32>, tensor<2x6x5x4xf32>)
  func.return %dq : tensor<2x6x3x4xf32>
}

// -----

// Without elements nothing is repeated.
// CHECK-LABEL: func.func @empty
// CHECK:         nn.attention %q, %keys, %keys
func.func @empty(%q: tensor<0x6x3x4xf32>, %k: tensor<5x1x0x4xf32>) -> tensor<0x6x3x4xf32> {
  %0 = nn.broadcast_to %k : (tensor<5x1x0x4xf32>) -> tensor<5x6x0x4xf32>
  %keys = nn.transpose %0 {perm = array<i64: 2, 1, 0, 3>} : (tensor<5x6x0x4xf32>) -> tensor<0x6x5x4xf32>
  %out, %largest, %total = nn.attention %q, %keys, %keys {scale = 0.5} : (tensor<0x6x3x4xf32>, tensor<0x6x5x4xf32>, tensor<0x6x5x4xf32>) -> (tensor<0x6x3x4xf32>, tensor<0x6x3xf32>, tensor<0x6x3xf32>)
  func.return %out : tensor<0x6x3x4xf32>
}
