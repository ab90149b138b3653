// Remarks go to standard error in the form of all messages; they are no errors, and without --remarks there are none.
// RUN: aicf-opt %s --fuse --remarks 2>&1 >/dev/null | filecheck %s
// RUN: aicf-opt %s -p "fuse,select-kernels{target=sm_90}" --remarks -o %t 2>&1 | filecheck %s --check-prefix=KERNELS
// RUN: aicf-opt %s -p "fuse,select-kernels{target=sm_90}" 2>%t.messages | diff - %t
// RUN: test ! -s %t.messages
// RUN: aicf-opt %s --fuse --select-kernels --remarks --verify-diagnostics | filecheck %s --check-prefix=PRINTED
// RUN: sed s/softmax/sotfmax/ %s | not aicf-opt --fuse --remarks 2>&1 | filecheck %s --check-prefix=ERROR

// CHECK:      remarks.mlir:[[# @LINE + 22]]:8: remark: 'kernel.bias_add' op is not fused into kernel.gemm: another reader
// CHECK-NEXT:   %z = kernel.bias_add x(%y) bias(%t)
// CHECK-NEXT:        ^^^^^^^^^^^^^^^
// CHECK-NEXT: remarks.mlir:[[# @LINE + 16]]:8: note: the product
// CHECK-NEXT: remarks.mlir:[[# @LINE + 16]]:8: note: read by kernel.rowwise
// CHECK:      [[# @LINE + 16]]:8: remark: 'kernel.reduce_sum' op is not fused with kernel.rowwise: sums of columns
// CHECK:      [[# @LINE + 16]]:8: remark: 'kernel.bias_add' op is not fused with kernel.reduce_sum: it goes on
// CHECK-NOT:  remark:

// KERNELS: :8: remark: 'kernel.bias_add' op is not fused
// KERNELS: :8: remark: 'kernel.gemm' op runs gemm_f32_tiled_16x16; kernel gemm_f16_tc declined: needs f16, got f32
// KERNELS: :8: remark: 'kernel.gemm' op runs gemm_f32_tiled_16x16; kernel gemm_f32_tiled_128x64 declined: too few tiles

// PRINTED:      remark: 'kernel.bias_add' op is not fused
// PRINTED:      builtin.module

// ERROR-NOT: remark
// ERROR:     error: dialect kernel has no operation 'kernel.sotfmax'
func.func @f(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %y = kernel.gemm a(%x) b(%x) : tensor<64x64xf32>
  %s = kernel.softmax x(%y) : tensor<64x64xf32>
  %t = kernel.reduce_sum x(%s) {dims = array<i64: 0>} : (tensor<64x64xf32>) -> tensor<64xf32>
  %z = kernel.bias_add x(%y) bias(%t) : (tensor<64x64xf32>, tensor<64xf32>) -> tensor<64x64xf32>
  func.return %z : tensor<64x64xf32>
}
