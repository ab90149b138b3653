// A convolution with its batch norm and relu is two launches forward and three backward, beside copies between layouts.
// RUN: aicf-opt %s -p 'convolutions{target="sm_90+cudnn"},canonicalize,decompose{target="sm_90+cudnn"},lower,fuse{target="sm_90+cudnn"},dce' | filecheck %s

// CHECK-LABEL: func.func @block
// CHECK-NOT:   kernel.{{map|rowwise|colwise}}
// CHECK:       %convolution = kernel.convolution x(
// CHECK:       %convolution_1 = kernel.convolution x(%convolution)
// CHECK-NOT:   kernel.{{map|rowwise}}
// CHECK:       kernel.colwise x(%convolution_1
// CHECK-NOT:   kernel.{{map|rowwise|colwise}}
// CHECK:       kernel.convolution x(
// CHECK-NOT:   kernel.{{map|rowwise|colwise}}
// CHECK:       kernel.convolution_input_grad
// CHECK-NOT:   kernel.{{map|rowwise}}
// CHECK:       kernel.colwise
// CHECK-NOT:   kernel.{{map|rowwise|colwise}}
// CHECK:       kernel.convolution_input_grad
// CHECK-NOT:   kernel.{{map|rowwise|colwise}}
// CHECK:       func.return
func.func @block(%image: tensor<8x16x16x16xbf16>, %first: tensor<16x16x3x3xbf16>, %w: tensor<32x16x3x3xbf16>,
    %gamma: tensor<32xf32>, %beta: tensor<32xf32>, %second: tensor<32x32x3x3xbf16>) -> (tensor<8x32x16x16xbf16>, tensor<32xf32>,
    tensor<32xf32>, tensor<16x16x3x3xbf16>, tensor<32x16x3x3xbf16>, tensor<32xf32>, tensor<32xf32>) {
  %x = nn.convolution %image, %first
    {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 16, 16>}
    : (tensor<8x16x16x16xbf16>, tensor<16x16x3x3xbf16>) -> tensor<8x16x16x16xbf16>
  %convolution = nn.convolution %x, %w
    {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 16, 16>}
    : (tensor<8x16x16x16xbf16>, tensor<32x16x3x3xbf16>) -> tensor<8x32x16x16xbf16>
  %wide = nn.cast %convolution : (tensor<8x32x16x16xbf16>) -> tensor<8x32x16x16xf32>
  %variance, %mean = nn.var_mean %wide {dims = array<i64: 0, 2, 3>, correction = 0.0, keepdim = true}
    : (tensor<8x32x16x16xf32>) -> (tensor<1x32x1x1xf32>, tensor<1x32x1x1xf32>)
  %mean.kept = nn.reshape %mean : (tensor<1x32x1x1xf32>) -> tensor<32xf32>
  %variance.kept = nn.reshape %variance : (tensor<1x32x1x1xf32>) -> tensor<32xf32>
  %eps = nn.constant {value = 1.0e-05} : tensor<f32>
  %above = nn.add %variance, %eps : (tensor<1x32x1x1xf32>, tensor<f32>) -> tensor<1x32x1x1xf32>
  %rsqrt = nn.rsqrt %above : tensor<1x32x1x1xf32>
  %sub = nn.sub %wide, %mean : (tensor<8x32x16x16xf32>, tensor<1x32x1x1xf32>) -> tensor<8x32x16x16xf32>
  %normal = nn.mul %sub, %rsqrt : (tensor<8x32x16x16xf32>, tensor<1x32x1x1xf32>) -> tensor<8x32x16x16xf32>
  %weight = nn.reshape %gamma : (tensor<32xf32>) -> tensor<32x1x1xf32>
  %scaled = nn.mul %normal, %weight : (tensor<8x32x16x16xf32>, tensor<32x1x1xf32>) -> tensor<8x32x16x16xf32>
  %bias = nn.reshape %beta : (tensor<32xf32>) -> tensor<32x1x1xf32>
  %shifted = nn.add %scaled, %bias : (tensor<8x32x16x16xf32>, tensor<32x1x1xf32>) -> tensor<8x32x16x16xf32>
  %narrow = nn.cast %shifted : (tensor<8x32x16x16xf32>) -> tensor<8x32x16x16xbf16>
  %y = nn.relu %narrow : tensor<8x32x16x16xbf16>
  %z = nn.convolution %y, %second
    {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 16, 16>}
    : (tensor<8x32x16x16xbf16>, tensor<32x32x3x3xbf16>) -> tensor<8x32x16x16xbf16>
  %dy = nn.convolution_input_grad %z, %second
    {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 16, 16>}
    : (tensor<8x32x16x16xbf16>, tensor<32x32x3x3xbf16>) -> tensor<8x32x16x16xbf16>
  %passed = nn.relu_grad %dy, %y : tensor<8x32x16x16xbf16>
  %g = nn.cast %passed : (tensor<8x32x16x16xbf16>) -> tensor<8x32x16x16xf32>
  %dbeta = nn.sum %g {dims = array<i64: 0, 2, 3>} : (tensor<8x32x16x16xf32>) -> tensor<32xf32>
  %terms = nn.mul %g, %normal : tensor<8x32x16x16xf32>
  %dgamma = nn.sum %terms {dims = array<i64: 0, 2, 3>} : (tensor<8x32x16x16xf32>) -> tensor<32xf32>
  %count = nn.constant {value = 2048.0} : tensor<f32>
  %bias.each = nn.div %dbeta, %count : (tensor<32xf32>, tensor<f32>) -> tensor<32xf32>
  %weight.each = nn.div %dgamma, %count : (tensor<32xf32>, tensor<f32>) -> tensor<32xf32>
  %bias.all = nn.reshape %bias.each : (tensor<32xf32>) -> tensor<32x1x1xf32>
  %weight.all = nn.reshape %weight.each : (tensor<32xf32>) -> tensor<32x1x1xf32>
  %along = nn.mul %normal, %weight.all : (tensor<8x32x16x16xf32>, tensor<32x1x1xf32>) -> tensor<8x32x16x16xf32>
  %less = nn.sub %g, %bias.all : (tensor<8x32x16x16xf32>, tensor<32x1x1xf32>) -> tensor<8x32x16x16xf32>
  %rest = nn.sub %less, %along : tensor<8x32x16x16xf32>
  %by = nn.mul %rest, %rsqrt : (tensor<8x32x16x16xf32>, tensor<1x32x1x1xf32>) -> tensor<8x32x16x16xf32>
  %dz = nn.mul %by, %weight : (tensor<8x32x16x16xf32>, tensor<32x1x1xf32>) -> tensor<8x32x16x16xf32>
  %dconvolution = nn.cast %dz : (tensor<8x32x16x16xf32>) -> tensor<8x32x16x16xbf16>
  %dx = nn.convolution_input_grad %dconvolution, %w
    {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 16, 16>}
    : (tensor<8x32x16x16xbf16>, tensor<32x16x3x3xbf16>) -> tensor<8x16x16x16xbf16>
  %dw = nn.convolution_weight_grad %x, %dconvolution
    {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 3, 3>}
    : (tensor<8x16x16x16xbf16>, tensor<8x32x16x16xbf16>) -> tensor<32x16x3x3xbf16>
  %dfirst = nn.convolution_weight_grad %image, %dx
    {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 3, 3>}
    : (tensor<8x16x16x16xbf16>, tensor<8x16x16x16xbf16>) -> tensor<16x16x3x3xbf16>
  func.return %z, %mean.kept, %variance.kept, %dfirst, %dw, %dgamma, %dbeta : tensor<8x32x16x16xbf16>, tensor<32xf32>,
    tensor<32xf32>, tensor<16x16x3x3xbf16>, tensor<32x16x3x3xbf16>, tensor<32xf32>, tensor<32xf32>
}
