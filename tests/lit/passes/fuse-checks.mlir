// Checks of indices that need nothing of each other are one.
// RUN: aicf-opt %s --fuse-checks=target=sm_90 --split-input-file | filecheck %s
// RUN: aicf-opt %s --fuse-checks --split-input-file | filecheck %s --check-prefix CPU

// Checks in a row. To ignore the index 0, which is a class, changes nothing.
// CHECK-LABEL: func.func @checks
// CHECK-NEXT:    %b = kernel.check_index status(%s) target(%i, %t)
// CHECK-NEXT:      {classes = array<i64: 5, 9>, code = 1, ignore_index = array<i64: 0, -100>}
// CHECK-NEXT:      : (tensor<3xi64>, tensor<4xi64>, tensor<2x2xi32>) -> tensor<3xi64>
// CHECK-NEXT:    func.return %b
// CPU-LABEL: func.func @checks
// CPU:         kernel.check_index status(%s) target(%i, %t)
func.func @checks(%s: tensor<3xi64>, %i: tensor<4xi64>, %t: tensor<2x2xi32>) -> tensor<3xi64> {
  %a = kernel.check_index status(%s) target(%i) {classes = array<i64: 5>, code = 1} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
  %b = kernel.check_index status(%a) target(%t) {classes = array<i64: 9>, code = 2, ignore_index = array<i64: -100>} : (tensor<3xi64>, tensor<2x2xi32>) -> tensor<3xi64>
  func.return %b : tensor<3xi64>
}

// -----

// A status that something else reads stays; so does a code that does not follow.
// CHECK-LABEL: func.func @checks_apart
// CHECK-NEXT:    %a = kernel.check_index status(%s) target(%i) {classes = array<i64: 5>, code = 1}
// CHECK:         %b = kernel.check_index status(%a) target(%i) {classes = array<i64: 6>, code = 2}
// CHECK:         %c = kernel.check_index status(%b) target(%i) {classes = array<i64: 7>, code = 4}
func.func @checks_apart(%s: tensor<3xi64>, %i: tensor<4xi64>) -> (tensor<3xi64>, tensor<3xi64>) {
  %a = kernel.check_index status(%s) target(%i) {classes = array<i64: 5>, code = 1} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
  %b = kernel.check_index status(%a) target(%i) {classes = array<i64: 6>, code = 2} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
  %c = kernel.check_index status(%b) target(%i) {classes = array<i64: 7>, code = 4} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
  func.return %a, %c : tensor<3xi64>, tensor<3xi64>
}

// -----

// Targets of 262144 bytes that launches make: on a CPU one of them may stay in memory for the check alone, and not two. The first
// stays anyway: it is returned.
// CHECK-LABEL: func.func @large_targets
// CHECK:         %e = kernel.check_index status(%s) target(%i, %j, %k, %l, %m)
// CPU-LABEL: func.func @large_targets
// CPU:         %c = kernel.check_index status(%s) target(%i, %j, %k)
// CPU:         %e = kernel.check_index status(%c) target(%l, %m)
func.func @large_targets(%s: tensor<3xi64>, %t: tensor<32768x1xi64>, %p: tensor<6xi64>, %u: tensor<6x1xi64>) -> (tensor<3xi64>, tensor<32768x1xi64>) {
  %i = kernel.scatter_rows x(%t) index(%p) src(%u) : (tensor<32768x1xi64>, tensor<6xi64>, tensor<6x1xi64>) -> tensor<32768x1xi64>
  %a = kernel.check_index status(%s) target(%i) {classes = array<i64: 5>, code = 1} : (tensor<3xi64>, tensor<32768x1xi64>) -> tensor<3xi64>
  %j = kernel.scatter_rows x(%t) index(%p) src(%u) : (tensor<32768x1xi64>, tensor<6xi64>, tensor<6x1xi64>) -> tensor<32768x1xi64>
  %b = kernel.check_index status(%a) target(%j) {classes = array<i64: 6>, code = 2} : (tensor<3xi64>, tensor<32768x1xi64>) -> tensor<3xi64>
  %k = kernel.scatter_rows x(%t) index(%p) src(%u) : (tensor<32768x1xi64>, tensor<6xi64>, tensor<6x1xi64>) -> tensor<32768x1xi64>
  %c = kernel.check_index status(%b) target(%k) {classes = array<i64: 7>, code = 3} : (tensor<3xi64>, tensor<32768x1xi64>) -> tensor<3xi64>
  %l = kernel.scatter_rows x(%t) index(%p) src(%u) : (tensor<32768x1xi64>, tensor<6xi64>, tensor<6x1xi64>) -> tensor<32768x1xi64>
  %d = kernel.check_index status(%c) target(%l) {classes = array<i64: 8>, code = 4} : (tensor<3xi64>, tensor<32768x1xi64>) -> tensor<3xi64>
  %m = kernel.scatter_rows x(%t) index(%p) src(%u) : (tensor<32768x1xi64>, tensor<6xi64>, tensor<6x1xi64>) -> tensor<32768x1xi64>
  %e = kernel.check_index status(%d) target(%m) {classes = array<i64: 9>, code = 5} : (tensor<3xi64>, tensor<32768x1xi64>) -> tensor<3xi64>
  func.return %e, %i : tensor<3xi64>, tensor<32768x1xi64>
}
