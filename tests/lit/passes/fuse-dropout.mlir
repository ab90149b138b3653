// A dropout adds no launch to a product or a row, and its site no kernel: launches read it.
// RUN: aicf-opt %s -p 'lower,fuse' | filecheck %s
// RUN: aicf-opt %s -p 'lower,fuse{target=sm_90}' | filecheck %s

// CHECK-LABEL: func.func @product
// CHECK-NOT:     kernel.map
// CHECK:         %c = kernel.gemm_map a(%x) b(%w) x(%view, %view_1, %view_2) {body = @relu_dropout}
// CHECK-NOT:     kernel.map
func.func @product(%x: tensor<64x256xf32>, %w: tensor<256x256xf32>, %r: tensor<2xi64>) -> tensor<64x256xf32> {
  %a = nn.matmul %x, %w : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  %b = nn.relu %a : tensor<64x256xf32>
  %c = nn.dropout %b, %r {p = 0.1, site = 0} : (tensor<64x256xf32>, tensor<2xi64>) -> tensor<64x256xf32>
  func.return %c : tensor<64x256xf32>
}

// CHECK-LABEL: func.func @row
// CHECK-NOT:     kernel.map
// CHECK:         %b = kernel.rowwise x(%x, %view, %view_1, %view_2)
// CHECK-NEXT:      {body = @softmax_dropout, reduced = 1, shape = array<i64: 64, 256>}
func.func @row(%x: tensor<64x256xf32>, %r: tensor<2xi64>) -> tensor<64x256xf32> {
  %a = nn.softmax %x : tensor<64x256xf32>
  %b = nn.dropout %a, %r {p = 0.1, site = 0} : (tensor<64x256xf32>, tensor<2xi64>) -> tensor<64x256xf32>
  func.return %b : tensor<64x256xf32>
}

// CHECK-LABEL: func.func @residual
// CHECK-NOT:     kernel.map
// CHECK:         %c = kernel.rowwise x(%x, %view, %view_1, %view_2, %y)
// CHECK-NEXT:      {body = @dropout_add_softmax, reduced = 1, shape = array<i64: 64, 256>}
func.func @residual(%x: tensor<64x256xf32>, %y: tensor<64x256xf32>, %r: tensor<2xi64>) -> (tensor<64x256xf32>) {
  %a = nn.dropout %x, %r {p = 0.1, site = 0} : (tensor<64x256xf32>, tensor<2xi64>) -> tensor<64x256xf32>
  %b = nn.add %a, %y : tensor<64x256xf32>
  %c = nn.softmax %b : tensor<64x256xf32>
  func.return %c : tensor<64x256xf32>
}

// CHECK-LABEL: func.func @layers
// CHECK-DAG:     %site{{.*}} = kernel.constant {value = 4.0, data} : tensor<i64>
// CHECK-DAG:     %site{{.*}} = kernel.constant {value = 5.0, data} : tensor<i64>
// CHECK:         kernel.gemm_map {{.*}}body = @relu_dropout}
// CHECK:         kernel.gemm_map {{.*}}body = @relu_dropout}
func.func @layers(%x: tensor<64x256xf32>, %w: tensor<256x256xf32>, %r: tensor<2xi64>) -> tensor<64x256xf32> {
  %a = nn.matmul %x, %w : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  %b = nn.relu %a : tensor<64x256xf32>
  %c = nn.dropout %b, %r {p = 0.1, site = 4} : (tensor<64x256xf32>, tensor<2xi64>) -> tensor<64x256xf32>
  %d = nn.matmul %c, %w : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  %e = nn.relu %d : tensor<64x256xf32>
  %f = nn.dropout %e, %r {p = 0.1, site = 5} : (tensor<64x256xf32>, tensor<2xi64>) -> tensor<64x256xf32>
  func.return %f : tensor<64x256xf32>
}
