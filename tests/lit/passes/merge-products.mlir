// RUN: aicf-opt %s -p "merge-products{target=sm_90}" --split-input-file | filecheck %s
// RUN: aicf-opt %s --merge-products --split-input-file | filecheck %s --check-prefix=CPU

// Queries, keys and values are one product; the casts of their weights go before it.
// CHECK-LABEL: func.func @qkv
// CHECK:         %[[Q:.*]] = nn.cast %wq
// CHECK-NEXT:    %[[K:.*]] = nn.cast %wk
// CHECK-NEXT:    %[[V:.*]] = nn.cast %wv
// CHECK-NEXT:    %[[W:.*]] = nn.concat %[[Q]], %[[K]], %[[V]] {dim = 0}
// CHECK-NEXT:    %[[Y:.*]] = nn.linear %x, %[[W]] : (tensor<1024x8xbf16>, tensor<10x8xbf16>) -> tensor<1024x10xbf16>
// CHECK-NEXT:    %q, %k, %v = nn.split %[[Y]] {dim = 1, sizes = array<i64: 4, 4, 2>}
// CHECK:         %r = nn.relu %q
// CHECK-NOT:     nn.linear
// CPU-LABEL: func.func @qkv
// CPU-NOT:     nn.concat
func.func @qkv(%x: tensor<1024x8xbf16>, %wq: tensor<4x8xf32>, %wk: tensor<4x8xf32>, %wv: tensor<2x8xf32>) -> (tensor<1024x4xbf16>, tensor<1024x4xbf16>, tensor<1024x2xbf16>) {
  %0 = nn.cast %wq : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  %q = nn.linear %x, %0 : (tensor<1024x8xbf16>, tensor<4x8xbf16>) -> tensor<1024x4xbf16>
  %r = nn.relu %q : tensor<1024x4xbf16>
  %1 = nn.cast %wk : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  %k = nn.linear %x, %1 : (tensor<1024x8xbf16>, tensor<4x8xbf16>) -> tensor<1024x4xbf16>
  %2 = nn.cast %wv : (tensor<2x8xf32>) -> tensor<2x8xbf16>
  %v = nn.linear %x, %2 : (tensor<1024x8xbf16>, tensor<2x8xbf16>) -> tensor<1024x2xbf16>
  func.return %r, %k, %v : tensor<1024x4xbf16>, tensor<1024x4xbf16>, tensor<1024x2xbf16>
}

// -----

// Not those of few rows, of a frozen weight beside a trained one, of a weight that is computed, or one with a bias and one without.
// CHECK-LABEL: func.func @apart
// CHECK-NOT:     nn.concat
func.func @apart(%x: tensor<512x8xf32>, %z: tensor<2048x8xf32>, %a: tensor<4x8xf32> {aicf.role = "param", aicf.name = "a"}, %b: tensor<4x8xf32> {aicf.role = "buffer", aicf.name = "b"}, %c: tensor<4xf32> {aicf.role = "param", aicf.name = "c"}) -> (tensor<512x4xf32>, tensor<512x4xf32>, tensor<2048x4xf32>, tensor<2048x4xf32>, tensor<2048x4xf32>, tensor<2048x4xf32>) {
  %0 = nn.linear %x, %a : (tensor<512x8xf32>, tensor<4x8xf32>) -> tensor<512x4xf32>
  %1 = nn.linear %x, %b : (tensor<512x8xf32>, tensor<4x8xf32>) -> tensor<512x4xf32>
  %2 = nn.linear %z, %a : (tensor<2048x8xf32>, tensor<4x8xf32>) -> tensor<2048x4xf32>
  %3 = nn.linear %z, %b : (tensor<2048x8xf32>, tensor<4x8xf32>) -> tensor<2048x4xf32>
  %4 = nn.linear %z, %a, %c : (tensor<2048x8xf32>, tensor<4x8xf32>, tensor<4xf32>) -> tensor<2048x4xf32>
  %d = nn.tanh %a : tensor<4x8xf32>
  %5 = nn.linear %z, %d : (tensor<2048x8xf32>, tensor<4x8xf32>) -> tensor<2048x4xf32>
  func.return %0, %1, %2, %3, %4, %5 : tensor<512x4xf32>, tensor<512x4xf32>, tensor<2048x4xf32>, tensor<2048x4xf32>, tensor<2048x4xf32>, tensor<2048x4xf32>
}
