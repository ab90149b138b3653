// RUN: aicf-opt %s --select-kernels --bufferize --persistent-weights --split-input-file | filecheck %s

// The cast of a param lasts: its slot is a copy, and the update writes the new value there too. That of the batch lasts by itself.
// CHECK-LABEL: plan.program @kept target "cpu" {
// CHECK:         plan.slot @w16 : memref<4x4xbf16> copy
// CHECK-NEXT:    plan.slot @x16 : memref<4x4xbf16> copy
// CHECK:         plan.launch @k0 "copy_cpu" copy x(@w) -> y(@w16)
// CHECK-NEXT:    plan.launch @k1 "copy_cpu" copy x(@x) -> y(@x16)
// CHECK:         plan.launch @k3 "sgd_step_cpu" sgd_step p(@w) g(@g) lr(@lr) weight_decay(@lr) -> p(@w) copy(@w16)
// CHECK-NEXT:      {groups = array<i64: 0>, copied = array<i64: 0>} after @k2
func.func @kept(
    %x: tensor<4x4xf32> {aicf.role = "input", aicf.name = "x"},
    %w: tensor<4x4xf32> {aicf.role = "param", aicf.name = "w"},
    %lr: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr"})
    -> (tensor<4x4xf32> {aicf.role = "update", aicf.name = "w"}) {
  %w16 = kernel.copy x(%w) : (tensor<4x4xf32>) -> tensor<4x4xbf16>
  %x16 = kernel.copy x(%x) : (tensor<4x4xf32>) -> tensor<4x4xbf16>
  %g = kernel.gemm a(%x16) b(%w16) : tensor<4x4xbf16>
  %w1 = kernel.sgd_step p(%w) g(%g) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4x4xf32>, tensor<4x4xbf16>, tensor<f64>, tensor<f64>) -> tensor<4x4xf32>
  func.return %w1 : tensor<4x4xf32>
}

// -----

// What nothing updates lasts without more; of casts in one launch those that do not last are left to another one.
// CHECK-LABEL: plan.program @apart
// CHECK:         plan.slot @w16 : memref<4xbf16> copy
// CHECK-NEXT:    plan.slot @x16 : memref<4xbf16> temp
// CHECK:         plan.launch @k0 "{{gen_multi_tensor_map_[0-9a-f]+}}" multi_tensor_map x(@w) -> y(@w16) {body = @narrow, segments = 1}
// CHECK-NEXT:    plan.launch @k2 "{{gen_multi_tensor_map_[0-9a-f]+}}" multi_tensor_map x(@x) -> y(@x16) {body = @narrow, segments = 1}
// CHECK-NEXT:    plan.launch @k1 "add_cpu" add x(@w16) y(@x16) -> z(@y) after @k0, @k2
scalar.body @narrow(%0: f32) -> f32 {
  scalar.yield %0 : f32
}
func.func @apart(
    %x: tensor<4xf32> {aicf.role = "state", aicf.name = "x"},
    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<4xbf16> {aicf.role = "output", aicf.name = "y"}) {
  %w16, %x16 = kernel.multi_tensor_map x(%w, %x) {body = @narrow, segments = 2} : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xbf16>, tensor<4xbf16>)
  %y = kernel.add x(%w16) y(%x16) : tensor<4xbf16>
  func.return %y : tensor<4xbf16>
}

// -----

// What is made of the batch alone lasts too, also where it is written in place; what reads a parameter, or a value before its last,
// does not. What leads to values that last, and to nothing else, need not last.
// CHECK-LABEL: plan.program @of_batch
// CHECK:         plan.slot @keys : memref<6xi32> temp
// CHECK-NEXT:    plan.slot @places : memref<6xi32> temp
// CHECK:         plan.slot @s : memref<3x1xf32> copy
// CHECK:         plan.slot @own : memref<3x1xf32> temp
// CHECK-LABEL: plan.program @between
// CHECK:         plan.slot @keys : memref<6xi32> copy
// CHECK-NEXT:    plan.slot @places : memref<6xi32> copy
// CHECK:         plan.slot @s : memref<3x1xf32> temp
func.func @of_batch(%z: tensor<3x1xf32> {aicf.role = "input", aicf.name = "z"}, %x: tensor<6x1xf32> {aicf.role = "input", aicf.name = "x"}, %i: tensor<6xi64> {aicf.role = "input", aicf.name = "i"}, %w: tensor<3x1xf32> {aicf.role = "param", aicf.name = "w"})
    -> (tensor<3x1xf32> {aicf.role = "output", aicf.name = "y"}) {
  %keys, %places = kernel.sort_rows index(%i) {rows = 3, source_rows = 6} : (tensor<6xi64>) -> (tensor<6xi32>, tensor<6xi32>)
  %s = kernel.scatter_add x(%z) index(%keys) src(%x) at(%places) : (tensor<3x1xf32>, tensor<6xi32>, tensor<6x1xf32>, tensor<6xi32>) -> tensor<3x1xf32>
  %r = kernel.relu x(%s) : tensor<3x1xf32>
  %own = kernel.add x(%r) y(%w) : tensor<3x1xf32>
  %y = kernel.add x(%own) y(%r) : tensor<3x1xf32>
  func.return %y : tensor<3x1xf32>
}
func.func @between(%z: tensor<3x1xf32> {aicf.role = "input", aicf.name = "z"}, %x: tensor<6x1xf32> {aicf.role = "input", aicf.name = "x"}, %i: tensor<6xi64> {aicf.role = "input", aicf.name = "i"}, %w: tensor<3x1xf32> {aicf.role = "param", aicf.name = "w"})
    -> (tensor<3x1xf32> {aicf.role = "output", aicf.name = "y"}) {
  %keys, %places = kernel.sort_rows index(%i) {rows = 3, source_rows = 6} : (tensor<6xi64>) -> (tensor<6xi32>, tensor<6xi32>)
  %s = kernel.scatter_add x(%z) index(%keys) src(%x) at(%places) : (tensor<3x1xf32>, tensor<6xi32>, tensor<6x1xf32>, tensor<6xi32>) -> tensor<3x1xf32>
  %own = kernel.add x(%s) y(%w) : tensor<3x1xf32>
  %r = kernel.relu x(%s) : tensor<3x1xf32>
  %y = kernel.add x(%own) y(%r) : tensor<3x1xf32>
  func.return %y : tensor<3x1xf32>
}

// -----

// An update that is generated gives its value once more, rounded.
// CHECK-LABEL: scalar.body @moved_copied(%0: f32, %1: f32) -> (f32, f32) {
// CHECK-NEXT:    %2 = arith.subf %0, %1 : f32
// CHECK-NEXT:    %3 = arith.truncf %2 : f32 to f16
// CHECK-NEXT:    %4 = arith.extf %3 : f16 to f32
// CHECK-NEXT:    scalar.yield %2, %4 : f32, f32
// CHECK-LABEL: plan.program @generated
// CHECK:         plan.slot @w16 : memref<4x4xf16> copy
// CHECK:         map x(@w, @g) -> y(@w, @w16)
// CHECK-NEXT:      {body = @moved_copied, shape = array<i64: 4, 4>}
scalar.body @moved(%0: f32, %1: f32) -> f32 {
  %2 = arith.subf %0, %1 : f32
  scalar.yield %2 : f32
}
func.func @generated(%w: tensor<4x4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<4x4xf32> {aicf.role = "update", aicf.name = "w"}) {
  %w16 = kernel.copy x(%w) : (tensor<4x4xf32>) -> tensor<4x4xf16>
  %g = kernel.gemm a(%w16) b(%w16) : tensor<4x4xf16>
  %w1 = kernel.map x(%w, %g) {body = @moved, shape = array<i64: 4, 4>} : (tensor<4x4xf32>, tensor<4x4xf16>) -> tensor<4x4xf32>
  func.return %w1 : tensor<4x4xf32>
}

// -----

// Something reads the cast behind the update, or nothing writes a copy beside the new value: then it stays as it is.
// CHECK-LABEL: plan.program @read_later
// CHECK:         plan.slot @w16 : memref<4xbf16> temp
// CHECK-LABEL: plan.program @another_type
// CHECK:         plan.slot @w16 : memref<4xbf16> temp
func.func @read_later(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %lr: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr"})
    -> (tensor<4xf32> {aicf.role = "update", aicf.name = "w"}, tensor<4xbf16> {aicf.role = "output", aicf.name = "y"}) {
  %w16 = kernel.copy x(%w) : (tensor<4xf32>) -> tensor<4xbf16>
  %w1 = kernel.sgd_step p(%w) g(%w16) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4xf32>, tensor<4xbf16>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  %y = kernel.relu x(%w16) : tensor<4xbf16>
  func.return %w1, %y : tensor<4xf32>, tensor<4xbf16>
}
func.func @another_type(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}, %x: tensor<4xf32> {aicf.role = "input", aicf.name = "x"})
    -> (tensor<4xf32> {aicf.role = "update", aicf.name = "w"}, tensor<4xbf16> {aicf.role = "output", aicf.name = "y"}) {
  %w16 = kernel.copy x(%w) : (tensor<4xf32>) -> tensor<4xbf16>
  %y = kernel.relu x(%w16) : tensor<4xbf16>
  %w1 = kernel.add x(%w) y(%x) : tensor<4xf32>
  func.return %w1, %y : tensor<4xf32>, tensor<4xbf16>
}
