// A kernel that needs scratch memory gets a temporary of its own, named by its launch.
// RUN: aicf-opt %s --select-kernels=target=sm_90 | filecheck %s --check-prefix=SELECT
// RUN: aicf-opt %s --select-kernels=target=sm_90 --bufferize | filecheck %s

// SELECT-LABEL: func.func @workspace
// SELECT-NEXT:    %y = kernel.reduce_sum x(%x) {dims = array<i64: 0, 1>} id "reduce_sum_f32" workspace [[BYTES:[0-9]+]]
// SELECT-NEXT:      : (tensor<65536x4xf32>) -> tensor<f32>
// CHECK-LABEL: plan.program @workspace target "sm_90" {
// CHECK-NEXT:    plan.slot @x : memref<65536x4xf32> input "x"
// CHECK-NEXT:    plan.slot @result0 : memref<f32> output "result0"
// CHECK-NEXT:    plan.slot @k0.workspace : memref<{{[0-9]+}}xi8> temp
// CHECK-NEXT:    plan.launch @k0 "reduce_sum_f32" reduce_sum x(@x) -> y(@result0) {dims = array<i64: 0, 1>} workspace @k0.workspace
func.func @workspace(%x: tensor<65536x4xf32>) -> tensor<f32> {
  %y = kernel.reduce_sum x(%x) {dims = array<i64: 0, 1>} : (tensor<65536x4xf32>) -> tensor<f32>
  func.return %y : tensor<f32>
}
