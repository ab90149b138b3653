// With --remarks: where a chain ends though a product follows, and why.
// RUN: aicf-opt %s -p 'fuse{target="sm_90"}' --remarks --split-input-file --verify-diagnostics

// Its kernel takes no width that is no multiple of 16.
func.func @width(%x: tensor<32768x16xbf16>, %u: tensor<16x16xbf16>, %v: tensor<16x24xbf16>) -> tensor<32768x24xbf16> {
  // expected-remark@+1 {{'kernel.gemm' op ends a chain of 1 products, of 2 that follow: link 1: expected widths up to 128 in steps of 16, got 24}}
  %0 = kernel.gemm a(%x) b(%u) : (tensor<32768x16xbf16>, tensor<16x16xbf16>) -> tensor<32768x16xbf16>
  %1 = kernel.gemm a(%0) b(%v) : (tensor<32768x16xbf16>, tensor<16x24xbf16>) -> tensor<32768x24xbf16>
  func.return %1 : tensor<32768x24xbf16>
}

// -----

func.func @rows(%x: tensor<32768x16xbf16>, %u: tensor<16x16xbf16>) -> tensor<32768x16xbf16> {
  %0 = kernel.gemm a(%x) b(%u) : (tensor<32768x16xbf16>, tensor<16x16xbf16>) -> tensor<32768x16xbf16>
  // expected-remark@+1 {{'kernel.gemm' op ends a chain of 2 products: kernel.softmax reads more than elements of its rows}}
  %1 = kernel.gemm a(%0) b(%u) : (tensor<32768x16xbf16>, tensor<16x16xbf16>) -> tensor<32768x16xbf16>
  // expected-note@+1 {{reads it}}
  %2 = kernel.softmax x(%1) : tensor<32768x16xbf16>
  func.return %2 : tensor<32768x16xbf16>
}
