// A product that a library of the target multiplies keeps its kernel: it gets the epilogues that the library has, and no other.
// RUN: aicf-opt %s --fuse='target="sm_90+cublaslt"' | filecheck %s --check-prefix=LT
// RUN: aicf-opt %s --fuse=target=sm_90 | filecheck %s --check-prefix=OWN
// RUN: aicf-opt %s -p 'fuse{target="sm_90+cublaslt"}' --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=SAID

// LT-LABEL:  func.func @bias_relu
// LT:          kernel.gemm_epilogue a(%x) b(%w) bias(%b) -> out {act = "relu"}
// LT-NEXT:       :
// LT-NEXT:     func.return
func.func @bias_relu(%x: tensor<512x256xbf16>, %w: tensor<256x256xbf16>, %b: tensor<256xbf16>) -> tensor<512x256xbf16> {
  %0 = kernel.gemm a(%x) b(%w) : (tensor<512x256xbf16>, tensor<256x256xbf16>) -> tensor<512x256xbf16>
  %1 = kernel.bias_add x(%0) bias(%b) : (tensor<512x256xbf16>, tensor<256xbf16>) -> tensor<512x256xbf16>
  %2 = kernel.relu x(%1) : tensor<512x256xbf16>
  func.return %2 : tensor<512x256xbf16>
}

// Too little for the library: a product of our own, with any epilogue.
// LT-LABEL:  func.func @small
// LT:          kernel.gemm_epilogue a(%x) b(%w) -> out {act = "gelu"}
func.func @small(%x: tensor<8x16xbf16>, %w: tensor<16x16xbf16>) -> tensor<8x16xbf16> {
  %0 = kernel.gemm a(%x) b(%w) : (tensor<8x16xbf16>, tensor<16x16xbf16>) -> tensor<8x16xbf16>
  %1 = kernel.gelu x(%0) : tensor<8x16xbf16>
  func.return %1 : tensor<8x16xbf16>
}

// Another activation than relu is a launch of its own.
// LT-LABEL:  func.func @gelu
// LT:          kernel.gemm a(%x) b(%w) :
// LT:          kernel.gelu x(
// OWN-LABEL: func.func @gelu
// OWN:         kernel.gemm_epilogue a(%x) b(%w) -> out {act = "gelu"}
// SAID:      remark: 'kernel.gelu' op is not fused into kernel.gemm: a library multiplies it, which has no such epilogue
func.func @gelu(%x: tensor<512x256xbf16>, %w: tensor<256x256xbf16>) -> tensor<512x256xbf16> {
  %0 = kernel.gemm a(%x) b(%w) : (tensor<512x256xbf16>, tensor<256x256xbf16>) -> tensor<512x256xbf16>
  %1 = kernel.gelu x(%0) : tensor<512x256xbf16>
  func.return %1 : tensor<512x256xbf16>
}

// So is the gradient of relu, and what sums its columns is one launch with it.
// LT-LABEL:  func.func @relu_gradient
// LT:          %[[Z:.*]] = kernel.gemm a(%dy) b(%w) :
// LT:          %dx, %db = kernel.colwise x(%[[Z]], %h)
// LT-NEXT:       :
// LT-NEXT:     func.return
// OWN-LABEL: func.func @relu_gradient
// OWN:         kernel.gemm_epilogue {{.*}} {act_grad = "relu"}
func.func @relu_gradient(%dy: tensor<512x256xbf16>, %w: tensor<256x256xbf16>, %h: tensor<512x256xbf16>)
    -> (tensor<512x256xbf16>, tensor<256xbf16>) {
  %0 = kernel.gemm a(%dy) b(%w) : (tensor<512x256xbf16>, tensor<256x256xbf16>) -> tensor<512x256xbf16>
  %dx = kernel.relu_bwd dy(%0) saved(%h) : tensor<512x256xbf16>
  %db = kernel.reduce_sum x(%dx) {dims = array<i64: 0>} : (tensor<512x256xbf16>) -> tensor<256xbf16>
  func.return %dx, %db : tensor<512x256xbf16>, tensor<256xbf16>
}

// The gradient of an activation, through a reshape of what was saved.
// LT-LABEL:  func.func @silu_gradient
// LT-NOT:      kernel.reshape
// LT:          kernel.gemm a(%dy) b(%w) :
// LT:          kernel.silu_bwd
// OWN-LABEL: func.func @silu_gradient
// OWN:         kernel.gemm_epilogue {{.*}} {act_grad = "silu"}
// SAID:      remark: 'kernel.silu_bwd' op is not fused into kernel.gemm: a library multiplies it
func.func @silu_gradient(%dy: tensor<512x256xf16>, %w: tensor<256x256xf16>, %x: tensor<512x256xf16>) -> tensor<512x256xf16> {
  %0 = kernel.gemm a(%dy) b(%w) : (tensor<512x256xf16>, tensor<256x256xf16>) -> tensor<512x256xf16>
  %1 = kernel.silu_bwd dy(%0) saved(%x) : tensor<512x256xf16>
  func.return %1 : tensor<512x256xf16>
}

// A map of any other kind stays a launch of its own.
// LT-LABEL:  func.func @residual
// LT:          kernel.gemm a(%x) b(%w) :
// LT-NOT:      gemm_map
// LT:          func.return
// OWN-LABEL: func.func @residual
// OWN:         kernel.gemm_map
// SAID:      is not fused into kernel.gemm: a library multiplies it, which has no such epilogue
func.func @residual(%x: tensor<512x256xbf16>, %w: tensor<256x256xbf16>) -> tensor<512x256xbf16> {
  %0 = kernel.gemm a(%x) b(%w) : (tensor<512x256xbf16>, tensor<256x256xbf16>) -> tensor<512x256xbf16>
  %1 = kernel.add x(%0) y(%x) : tensor<512x256xbf16>
  %2 = kernel.mul x(%1) y(%x) : tensor<512x256xbf16>
  func.return %2 : tensor<512x256xbf16>
}
