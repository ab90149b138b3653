// A convolution with its bias and relu is one launch of the library, and two gradients and a sum backward.
// RUN: aicf-opt %s -p 'convolutions{target="sm_90+cudnn"},canonicalize,decompose{target="sm_90+cudnn"},lower,fuse{target="sm_90+cudnn"},dce' | filecheck %s

// CHECK-LABEL: func.func @block
// CHECK-NOT:   kernel.{{map|rowwise|colwise}}
// CHECK:       %relu = kernel.convolution x(%{{.*}}) w(%{{.*}}) bias(%b) {act = "relu"
// CHECK-NOT:   kernel.{{map|rowwise|colwise}}
// CHECK:       kernel.convolution x(%relu) w(%{{.*}}) {
// CHECK-NOT:   kernel.{{map|rowwise|colwise}}
// CHECK:       kernel.convolution_input_grad
// CHECK-NOT:   kernel.{{map|rowwise}}
// CHECK:       %{{.*}}, %db = kernel.colwise
// CHECK-NOT:   kernel.{{map|rowwise|colwise}}
// CHECK:       kernel.convolution_weight_grad
// CHECK-NOT:   kernel.{{map|rowwise|colwise}}
// CHECK:       func.return
func.func @block(%x: tensor<8x16x16x16xbf16>, %w: tensor<32x16x3x3xbf16>, %b: tensor<32xbf16>, %last: tensor<32x32x3x3xbf16>,
    %g: tensor<8x32x16x16xbf16>) -> (tensor<8x32x16x16xbf16>, tensor<32x16x3x3xbf16>, tensor<32xbf16>) {
  %y = nn.convolution %x, %w, %b
    {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 16, 16>}
    : (tensor<8x16x16x16xbf16>, tensor<32x16x3x3xbf16>, tensor<32xbf16>) -> tensor<8x32x16x16xbf16>
  %relu = nn.relu %y : tensor<8x32x16x16xbf16>
  %z = nn.convolution %relu, %last
    {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 16, 16>}
    : (tensor<8x32x16x16xbf16>, tensor<32x32x3x3xbf16>) -> tensor<8x32x16x16xbf16>
  %drelu = nn.convolution_input_grad %g, %last
    {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 16, 16>}
    : (tensor<8x32x16x16xbf16>, tensor<32x32x3x3xbf16>) -> tensor<8x32x16x16xbf16>
  %dy = nn.relu_grad %drelu, %relu : tensor<8x32x16x16xbf16>
  %dw = nn.convolution_weight_grad %x, %dy
    {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 3, 3>}
    : (tensor<8x16x16x16xbf16>, tensor<8x32x16x16xbf16>) -> tensor<32x16x3x3xbf16>
  %db = nn.sum %dy {dims = array<i64: 0, 2, 3>} : (tensor<8x32x16x16xbf16>) -> tensor<32xbf16>
  func.return %z, %dw, %db : tensor<8x32x16x16xbf16>, tensor<32x16x3x3xbf16>, tensor<32xbf16>
}
