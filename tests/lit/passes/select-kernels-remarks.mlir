// With --remarks: each kernel of the target's device that is preferred to the one that runs, with its reason.
// RUN: aicf-opt %s -p "select-kernels{target=sm_90}" --remarks --split-input-file --verify-diagnostics

func.func @small(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  // expected-remark@+12 {{kernel gemm_tf32_cublaslt declined: needs allow_tf32}}
  // expected-remark@+11 {{kernel gemm_tf32_tc declined: needs allow_tf32}}
  // expected-remark@+10 {{kernel gemm_f16_cublaslt declined: needs f16, got f32}}
  // expected-remark@+9 {{kernel gemm_bf16_cublaslt declined: needs bf16, got f32}}
  // expected-remark@+8 {{kernel gemm_f32_cublaslt declined: needs cuBLASLt: a target with +cublaslt}}
  // expected-remark@+7 {{kernel gemm_f64_cublaslt declined: needs f64, got f32}}
  // expected-remark@+6 {{'kernel.gemm' op runs gemm_f32_tiled_16x16; kernel gemm_f16_tc declined: needs f16, got f32}}
  // expected-remark@+5 {{'kernel.gemm' op runs gemm_f32_tiled_16x16; kernel gemm_bf16_tc declined: needs bf16, got f32}}
  // expected-remark@+4 {{kernel gemm_f32_short_sums declined: needs sums of at most 16 terms, got 64}}
  // expected-remark@+3 {{kernel gemm_f32_tiled_128x64 declined: too few tiles to fill the chip: those of 16x16 take less time}}
  // expected-remark@+2 {{kernel gemm_f32_tiled_64x64 declined: too few tiles to fill the chip}}
  // expected-remark@+1 {{kernel gemm_f32_tiled_64x32 declined: too few tiles to fill the chip}}
  %y = kernel.gemm a(%x) b(%x) : tensor<64x64xf32>
  func.return %y : tensor<64x64xf32>
}

// -----

// The first choice runs: nothing to say. An id that somebody has put there was not chosen here.
func.func @first_choice(%x: tensor<64x64xf16>) -> (tensor<64x64xf16>, tensor<64x64xf16>) {
  %y = kernel.relu x(%x) : tensor<64x64xf16>
  %z = kernel.relu x(%x) id "relu_f16" : tensor<64x64xf16>
  func.return %y, %z : tensor<64x64xf16>, tensor<64x64xf16>
}
