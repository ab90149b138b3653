// Gradients of micro-batches are kept in buckets, as those of ranks, and added at the end, in their order.
// RUN: aicf-opt %s -p "accumulate{count=2 apart}" | filecheck %s
// RUN: aicf-opt %s -p "accumulate{count=1 apart}" | filecheck %s --check-prefix=ONE

// CHECK-LABEL: func.func @step
// CHECK:         %[[A:.*]] = nn.concat %reshape, %reshape_1 {dim = 0} : (tensor<4xf32>, tensor<2xf32>) -> tensor<6xf32>
// A wider copy of 16-bit numbers is kept in 16 bits.
// CHECK:         %[[C:.*]] = nn.reshape %h : tensor<2xbf16>
// CHECK:         %[[B:.*]] = nn.concat {{.*}} {dim = 0} : (tensor<4xf32>, tensor<2xf32>) -> tensor<6xf32>
// CHECK:         %[[D:.*]] = nn.reshape %h.1 : tensor<2xbf16>
// CHECK:         %[[S:.*]] = nn.add %[[A]], %[[B]] : tensor<6xf32>
// CHECK:         %[[M:.*]] = nn.div %[[S]],
// CHECK-NEXT:    %[[W:.*]], %[[V:.*]] = nn.split %[[M]] {dim = 0, sizes = array<i64: 4, 2>}
// CHECK-NEXT:    %dw.mean = nn.reshape %[[W]] : (tensor<4xf32>) -> tensor<2x2xf32>
// CHECK-NEXT:    %dv.mean = nn.reshape %[[V]] : tensor<2xf32>
// CHECK-NEXT:    %[[CW:.*]] = nn.cast %[[C]] : (tensor<2xbf16>) -> tensor<2xf32>
// CHECK-NEXT:    %[[DW:.*]] = nn.cast %[[D]] : (tensor<2xbf16>) -> tensor<2xf32>
// CHECK-NEXT:    nn.add %[[CW]], %[[DW]] : tensor<2xf32>
// CHECK:         func.return %l.mean, %dw.mean, %dv.mean, %du.mean

// ONE-LABEL: func.func @step
// ONE-NOT:     nn.concat
// ONE:         func.return %l, %dw, %dv, %du
func.func @step(
    %w: tensor<2x2xf32> {aicf.role = "param", aicf.name = "w"},
    %v: tensor<2xf32> {aicf.role = "param", aicf.name = "v"},
    %u: tensor<2xf32> {aicf.role = "param", aicf.name = "u"},
    %x: tensor<2xf32> {aicf.role = "input", aicf.name = "x"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<2x2xf32> {aicf.role = "grad", aicf.name = "w"},
        tensor<2xf32> {aicf.role = "grad", aicf.name = "v"}, tensor<2xf32> {aicf.role = "grad", aicf.name = "u"}) {
  %l = nn.sum %x {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  %dw = nn.mul %w, %x : (tensor<2x2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
  %dv = nn.mul %v, %x : tensor<2xf32>
  %h = nn.cast %x : (tensor<2xf32>) -> tensor<2xbf16>
  %du = nn.cast %h : (tensor<2xbf16>) -> tensor<2xf32>
  func.return %l, %dw, %dv, %du : tensor<f32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>
}
