// A kernel that cannot run the op is refused with its reason, never replaced by another one.
// RUN: aicf-opt %s -p "select-kernels{target=sm_75}" --split-input-file --verify-diagnostics

func.func @unsupported(%x: tensor<4x4xf16>) -> tensor<4x4xf16> {
  // expected-error@below {{no kernel runs gemm(f16[4, 4], f16[4, 4]) -> (f16[4, 4]) on sm_75; candidates:}}
  %y = kernel.gemm a(%x) b(%x) : tensor<4x4xf16>
  func.return %y : tensor<4x4xf16>
}

// -----

func.func @named(%x: tensor<4x3xf16>) -> tensor<4x3xf16> {
  // expected-error@below {{relu_f16_half2}}
  %y = kernel.relu x(%x) id "relu_f16_half2" : tensor<4x3xf16>
  func.return %y : tensor<4x3xf16>
}

// -----

func.func @unknown(%x: tensor<4x3xf16>) -> tensor<4x3xf16> {
  // expected-error@below {{relu_fast}}
  %y = kernel.relu x(%x) id "relu_fast" : tensor<4x3xf16>
  func.return %y : tensor<4x3xf16>
}

// -----

func.func @other_op(%x: tensor<4x3xf16>) -> tensor<4x3xf16> {
  // expected-error@below {{neg_f16}}
  %y = kernel.relu x(%x) id "neg_f16" : tensor<4x3xf16>
  func.return %y : tensor<4x3xf16>
}
