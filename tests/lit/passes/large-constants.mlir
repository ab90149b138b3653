// RUN: aicf-opt %s --large-constants --split-input-file | filecheck %s

// Zeros to which rows are added: one zero, which is repeated in the memory of the sum.
// CHECK-LABEL: func.func @table
// CHECK:         %[[ONE:.*]] = kernel.constant {value = 0.0} : tensor<1xf32>
// CHECK:         %[[V:.*]] = kernel.view %[[ONE]] : (tensor<1xf32>) -> tensor<4096x64xf32, strided<[0, 0]>>
// CHECK-NEXT:    %[[Z:.*]] = kernel.copy x(%[[V]])
// CHECK-NEXT:    kernel.scatter_add x(%[[Z]])
func.func @table(%index: tensor<8xi64>, %dy: tensor<8x64xf32>) -> tensor<4096x64xf32> {
  %zero = kernel.constant {value = 0.0} : tensor<4096x64xf32>
  %d = kernel.scatter_add x(%zero) index(%index) src(%dy) : (tensor<4096x64xf32>, tensor<8xi64>, tensor<8x64xf32>) -> tensor<4096x64xf32>
  func.return %d : tensor<4096x64xf32>
}

// -----

// A small one stays, as does one whose memory the launch that reads it cannot use.
// CHECK-LABEL: func.func @others
// CHECK:         kernel.constant {value = 0.0} : tensor<64x64xf32>
// CHECK:         kernel.constant {value = 1.0} : tensor<1024x1024xf32>
// CHECK-NOT:     kernel.copy
func.func @others(%index: tensor<8xi64>, %dy: tensor<8x64xf32>, %a: tensor<4x1024xf32>) -> (tensor<64x64xf32>, tensor<4x1024xf32>) {
  %zero = kernel.constant {value = 0.0} : tensor<64x64xf32>
  %ones = kernel.constant {value = 1.0} : tensor<1024x1024xf32>
  %d = kernel.scatter_add x(%zero) index(%index) src(%dy) : (tensor<64x64xf32>, tensor<8xi64>, tensor<8x64xf32>) -> tensor<64x64xf32>
  %p = kernel.gemm a(%a) b(%ones) : (tensor<4x1024xf32>, tensor<1024x1024xf32>) -> tensor<4x1024xf32>
  func.return %d, %p : tensor<64x64xf32>, tensor<4x1024xf32>
}
