// RUN: aicf-opt %s --convolutions=target=sm_90 --split-input-file | filecheck %s
// RUN: aicf-opt %s --convolutions --dce --split-input-file | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s --convolutions='target="sm_90+cudnn"' --dce --split-input-file | filecheck %s --check-prefix=CUDNN
// RUN: aicf-opt %s --convolutions=nests=true --split-input-file | filecheck %s --check-prefix=NESTS
// RUN: aicf-opt %s --convolutions=nests=true --decompose --lower --fuse --dce --split-input-file | filecheck %s --check-prefix=FUSED

// Without a library a convolution is a product over its windows, which its gradient shares. With one all is channels last on tensor
// cores, as it is for the kernels of a CPU.
// CHECK-LABEL: func.func @block
// CHECK:         %[[WINDOWS:.*]] = nn.unfold %x
// CHECK:         nn.matmul
// CHECK-NOT:     nn.unfold
// CHECK:         nn.matmul %{{.*}}, %{{.*}} {trans_b = true, allow_tf32 = true}
// CHECK-NOT:     nn.convolution
// CPU-LABEL:   func.func @block
// CPU:           nn.convolution %{{.*}}, %{{.*}}
// CPU-NEXT:      channels_last = true
// CPU-NOT:       tensor<2x8x5x5xf32>
// CPU:           nn.convolution_weight_grad
// CUDNN-LABEL: func.func @block
// CUDNN:         %[[X:.*]] = nn.transpose %x {perm = array<i64: 0, 2, 3, 1>}
// CUDNN-NEXT:    %[[W:.*]] = nn.transpose %w
// CUDNN-NEXT:    %[[Y:.*]] = nn.convolution %[[X]], %[[W]]
// CUDNN-NEXT:    channels_last = true
// CUDNN:         nn.add %[[Y]]
// CUDNN-NEXT:    %[[RELU:.*]] = nn.relu %{{.*}} : tensor<2x5x5x8xf32>
// CUDNN-NEXT:    nn.sum %[[RELU]] {dims = array<i64: 1, 2>}
// CUDNN-NEXT:    %[[DW:.*]] = nn.convolution_weight_grad %[[X]], %[[RELU]]
// CUDNN-NOT:     tensor<2x8x5x5xf32>
// CUDNN:         nn.transpose %[[DW]] {perm = array<i64: 0, 3, 1, 2>}
// NESTS-LABEL: func.func @block
// NESTS:         nn.window_sum %x, %w
// NESTS:         nn.window_product %x, %{{.*}}
// NESTS-NOT:     nn.convolution
// With its bias and its activation the convolution is one launch.
// FUSED-LABEL: func.func @block
// FUSED:         kernel.view %b
// FUSED-NEXT:    %[[R:.*]] = kernel.colwise x(%{{.*}}) table(%x, %w)
// FUSED-NEXT:    {body = @window_sum_add_relu, reduced = 1, shape = array<i64: 8, 2, 8, 5, 5>}
// FUSED:         kernel.reduce_sum x(%[[R]])
// FUSED-NEXT:    kernel.rowwise table(%[[R]], %x)
func.func @block(%x: tensor<2x8x5x5xf32>, %w: tensor<8x8x3x3xf32>, %b: tensor<8x1x1xf32>) -> (tensor<2x8xf32>, tensor<8x8x3x3xf32>) {
  %y = nn.convolution %x, %w {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 5, 5>, allow_tf32 = true} : (tensor<2x8x5x5xf32>, tensor<8x8x3x3xf32>) -> tensor<2x8x5x5xf32>
  %z = nn.add %y, %b : (tensor<2x8x5x5xf32>, tensor<8x1x1xf32>) -> tensor<2x8x5x5xf32>
  %r = nn.relu %z : tensor<2x8x5x5xf32>
  %s = nn.sum %r {dims = array<i64: 2, 3>} : (tensor<2x8x5x5xf32>) -> tensor<2x8xf32>
  %dw = nn.convolution_weight_grad %x, %r {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 3, 3>, allow_tf32 = true} : (tensor<2x8x5x5xf32>, tensor<2x8x5x5xf32>) -> tensor<8x8x3x3xf32>
  func.return %s, %dw : tensor<2x8xf32>, tensor<8x8x3x3xf32>
}

// -----

// Without tensor cores images stay as they are. The gradient of the weights is a product for each image.
// CHECK-LABEL: func.func @exact
// CPU-LABEL:   func.func @exact
// NESTS-LABEL: func.func @exact
// FUSED-LABEL: func.func @exact
// CUDNN-LABEL: func.func @exact
// CUDNN-NOT:     channels_last
// CUDNN:         nn.convolution %x, %w
// CUDNN:         %[[RELU:.*]] = nn.relu %{{.*}} : tensor<2x8x5x5xf32>
// CUDNN:         %[[DY:.*]] = nn.reshape %[[RELU]] : (tensor<2x8x5x5xf32>) -> tensor<2x1x8x25xf32>
// CUDNN-NEXT:    nn.matmul %[[DY]], %{{.*}} {trans_b = true}
// CUDNN-NEXT:    (tensor<2x1x8x25xf32>, tensor<2x1x72x25xf32>) -> tensor<2x1x8x72xf32>
// CUDNN-NEXT:    nn.sum %{{.*}} {dims = array<i64: 0>}
// CUDNN-NOT:     nn.convolution_weight_grad
func.func @exact(%x: tensor<2x8x5x5xf32>, %w: tensor<8x8x3x3xf32>, %b: tensor<8x1x1xf32>) -> (tensor<2x8xf32>, tensor<8x8x3x3xf32>) {
  %y = nn.convolution %x, %w {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 5, 5>} : (tensor<2x8x5x5xf32>, tensor<8x8x3x3xf32>) -> tensor<2x8x5x5xf32>
  %z = nn.add %y, %b : (tensor<2x8x5x5xf32>, tensor<8x1x1xf32>) -> tensor<2x8x5x5xf32>
  %r = nn.relu %z : tensor<2x8x5x5xf32>
  %s = nn.sum %r {dims = array<i64: 2, 3>} : (tensor<2x8x5x5xf32>) -> tensor<2x8xf32>
  %dw = nn.convolution_weight_grad %x, %r {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 3, 3>} : (tensor<2x8x5x5xf32>, tensor<2x8x5x5xf32>) -> tensor<8x8x3x3xf32>
  func.return %s, %dw : tensor<2x8xf32>, tensor<8x8x3x3xf32>
}

// -----

// One layer alone stays as it is in 16 bits, if its images have whole vectors of channels: the library moves them itself.
// CUDNN-LABEL: func.func @alone
// CUDNN-NOT:     channels_last
// CUDNN:         nn.convolution %x, %w
// CUDNN-NOT:     channels_last
// CUDNN:         nn.convolution_input_grad %dy, %w
func.func @alone(%x: tensor<2x16x4x4xbf16>, %w: tensor<12x16x1x1xbf16>, %dy: tensor<2x12x4x4xbf16>) -> (tensor<2x12x4x4xbf16>, tensor<2x16x4x4xbf16>) {
  %y = nn.convolution %x, %w {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 0, 0>, size = array<i64: 4, 4>} : (tensor<2x16x4x4xbf16>, tensor<12x16x1x1xbf16>) -> tensor<2x12x4x4xbf16>
  %dx = nn.convolution_input_grad %dy, %w {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 0, 0>, size = array<i64: 4, 4>} : (tensor<2x12x4x4xbf16>, tensor<12x16x1x1xbf16>) -> tensor<2x16x4x4xbf16>
  func.return %y, %dx : tensor<2x12x4x4xbf16>, tensor<2x16x4x4xbf16>
}

// -----

// Two layers are channels last.
// CUDNN-LABEL: func.func @two
// CUDNN:         nn.transpose %x
// CUDNN:         nn.convolution %{{.*}}, %{{.*}}
// CUDNN-NEXT:    channels_last = true
// CUDNN-NOT:     nn.transpose %{{.*}} {perm = array<i64: 0, 3, 1, 2>}
// CUDNN:         nn.convolution %{{.*}}, %{{.*}}
// CUDNN-NEXT:    channels_last = true
func.func @two(%x: tensor<2x16x4x4xbf16>, %w: tensor<16x16x1x1xbf16>, %v: tensor<16x16x1x1xbf16>) -> tensor<2x16x4x4xbf16> {
  %y = nn.convolution %x, %w {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 0, 0>, size = array<i64: 4, 4>} : (tensor<2x16x4x4xbf16>, tensor<16x16x1x1xbf16>) -> tensor<2x16x4x4xbf16>
  %z = nn.convolution %y, %v {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 0, 0>, size = array<i64: 4, 4>} : (tensor<2x16x4x4xbf16>, tensor<16x16x1x1xbf16>) -> tensor<2x16x4x4xbf16>
  func.return %z : tensor<2x16x4x4xbf16>
}

// -----

// Images of three channels in 16 bits get five that are 0, and results of sixty get four: the library would add them each time.
// CUDNN-LABEL: func.func @narrow
// CUDNN:         nn.pad %{{.*}} {low = array<i64: 0, 0, 0, 0>, high = array<i64: 0, 0, 0, 5>}
// CUDNN:         nn.pad %{{.*}} {low = array<i64: 0, 0, 0, 0>, high = array<i64: 0, 0, 0, 4>}
// CUDNN:         (tensor<2x4x4x8xbf16>, tensor<2x4x4x64xbf16>) -> tensor<64x3x3x8xbf16>
// CUDNN:         nn.split %{{.*}} {dim = 0, sizes = array<i64: 60, 4>}
// CUDNN:         nn.split %{{.*}} {dim = 3, sizes = array<i64: 3, 5>}
// CHECK-LABEL: func.func @narrow
// CPU-LABEL:   func.func @narrow
// CPU:           nn.cast %x : (tensor<2x3x4x4xbf16>) -> tensor<2x3x4x4xf32>
// CPU:           nn.cast %dy
// CPU:           nn.convolution_weight_grad
// CPU:           nn.cast %{{.*}} : (tensor<60x3x3x3xf32>) -> tensor<60x3x3x3xbf16>
func.func @narrow(%x: tensor<2x3x4x4xbf16>, %dy: tensor<2x60x4x4xbf16>) -> tensor<60x3x3x3xbf16> {
  %dw = nn.convolution_weight_grad %x, %dy {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 3, 3>} : (tensor<2x3x4x4xbf16>, tensor<2x60x4x4xbf16>) -> tensor<60x3x3x3xbf16>
  func.return %dw : tensor<60x3x3x3xbf16>
}

// -----

// With few channels on one side a GPU has it as a weighed sum, with a library or without.
// CUDNN-LABEL: func.func @few
// CUDNN-NEXT:    nn.window_product %x, %dy
// CUDNN:         (tensor<2x3x4x4xbf16>, tensor<2x9x4x4xbf16>) -> tensor<9x3x1x1xbf16>
// CHECK-LABEL: func.func @few
// CHECK-NEXT:    nn.window_product %x, %dy
// CPU-LABEL:   func.func @few
// CPU-NOT:       nn.window_product
func.func @few(%x: tensor<2x3x4x4xbf16>, %dy: tensor<2x9x4x4xbf16>) -> tensor<9x3x1x1xbf16> {
  %dw = nn.convolution_weight_grad %x, %dy {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 0, 0>, size = array<i64: 1, 1>} : (tensor<2x3x4x4xbf16>, tensor<2x9x4x4xbf16>) -> tensor<9x3x1x1xbf16>
  func.return %dw : tensor<9x3x1x1xbf16>
}

// -----

// The library's kernels take a bias, but none beside groups. Elsewhere it is an addition.
// CHECK-LABEL: func.func @biases
// CHECK:         nn.matmul
// CHECK:         nn.add
// CHECK:         nn.matmul
// CHECK:         nn.add
// CPU-LABEL:   func.func @biases
// CPU:           nn.convolution %{{[a-z_0-9]*}}, %{{[a-z_0-9]*}} {
// CPU:           nn.add
// CPU:           nn.convolution %{{[a-z_0-9]*}}, %{{[a-z_0-9]*}} {
// CPU:           nn.add
// CUDNN-LABEL: func.func @biases
// CUDNN:         nn.convolution %{{[a-z_0-9]*}}, %{{[a-z_0-9]*}}, %b
// CUDNN:         nn.convolution %{{[a-z_0-9]*}}, %{{[a-z_0-9]*}} {
// CUDNN:         nn.add
// NESTS-LABEL: func.func @biases
// NESTS:         nn.window_sum
// NESTS:         nn.add
func.func @biases(%x: tensor<2x32x5x5xf32>, %w: tensor<32x32x3x3xf32>, %d: tensor<32x16x3x3xf32>, %b: tensor<32xf32>) -> tensor<2x32x5x5xf32> {
  %y = nn.convolution %x, %w, %b {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 5, 5>, allow_tf32 = true} : (tensor<2x32x5x5xf32>, tensor<32x32x3x3xf32>, tensor<32xf32>) -> tensor<2x32x5x5xf32>
  %z = nn.convolution %y, %d, %b {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 5, 5>, groups = 2, allow_tf32 = true} : (tensor<2x32x5x5xf32>, tensor<32x16x3x3xf32>, tensor<32xf32>) -> tensor<2x32x5x5xf32>
  func.return %z : tensor<2x32x5x5xf32>
}

// -----

// Groups of few channels have a kernel on each GPU, which adds a bias. It reads channels last, so they are moved, alone too.
// CHECK-LABEL: func.func @multiplied
// CHECK:         nn.convolution %{{.*}}, %{{.*}}, %b
// CHECK-NEXT:    channels_last = true
// CUDNN-LABEL: func.func @multiplied
// CUDNN:         nn.convolution %{{.*}}, %{{.*}}, %b
// CUDNN-NEXT:    groups = 8, channels_last = true
// CUDNN-NEXT:    (tensor<2x9x9x8xbf16>, tensor<16x7x7x1xbf16>, tensor<16xbf16>)
// CUDNN:         nn.convolution_input_grad
// CUDNN-NEXT:    channels_last = true
// CUDNN:         nn.convolution_weight_grad
// CUDNN-NEXT:    channels_last = true
func.func @multiplied(%x: tensor<2x8x9x9xbf16>, %w: tensor<16x1x7x7xbf16>, %b: tensor<16xbf16>, %dy: tensor<2x16x5x5xbf16>) -> (tensor<2x16x5x5xbf16>, tensor<2x8x9x9xbf16>, tensor<16x1x7x7xbf16>) {
  %y = nn.convolution %x, %w, %b {stride = array<i64: 2, 2>, dilation = array<i64: 1, 1>, low = array<i64: 3, 3>, size = array<i64: 5, 5>, groups = 8} : (tensor<2x8x9x9xbf16>, tensor<16x1x7x7xbf16>, tensor<16xbf16>) -> tensor<2x16x5x5xbf16>
  %dx = nn.convolution_input_grad %dy, %w {stride = array<i64: 2, 2>, dilation = array<i64: 1, 1>, low = array<i64: 3, 3>, size = array<i64: 9, 9>, groups = 8} : (tensor<2x16x5x5xbf16>, tensor<16x1x7x7xbf16>) -> tensor<2x8x9x9xbf16>
  %dw = nn.convolution_weight_grad %x, %dy {stride = array<i64: 2, 2>, dilation = array<i64: 1, 1>, low = array<i64: 3, 3>, size = array<i64: 7, 7>, groups = 8} : (tensor<2x8x9x9xbf16>, tensor<2x16x5x5xbf16>) -> tensor<16x1x7x7xbf16>
  func.return %y, %dx, %dw : tensor<2x16x5x5xbf16>, tensor<2x8x9x9xbf16>, tensor<16x1x7x7xbf16>
}

// -----

// One layer of one channel and one output a group stays where it is: the library is fast there. Then the bias is an addition.
// CUDNN-LABEL: func.func @separate
// CUDNN-NOT:     channels_last
// CUDNN:         nn.convolution %x, %w {
// CUDNN:         nn.add
func.func @separate(%x: tensor<2x16x9x9xf32>, %w: tensor<16x1x3x3xf32>, %b: tensor<16xf32>) -> tensor<2x16x9x9xf32> {
  %y = nn.convolution %x, %w, %b {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 1, 1>, size = array<i64: 9, 9>, groups = 16} : (tensor<2x16x9x9xf32>, tensor<16x1x3x3xf32>, tensor<16xf32>) -> tensor<2x16x9x9xf32>
  func.return %y : tensor<2x16x9x9xf32>
}
