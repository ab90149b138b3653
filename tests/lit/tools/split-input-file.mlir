// Pieces are treated one by one: a bad one does not stop the others, and lines count from the top of the file.
// RUN: not aicf-opt %s --split-input-file 2>&1 | filecheck %s
// RUN: aicf-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: split-input-file.mlir:[[# @LINE + 1]]:1: error: operation 'one.two' is of no known dialect
one.two

// -----

// CHECK: func.func @kept
func.func @kept(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
