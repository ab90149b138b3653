// RUN: aicf-opt %s --fuse --verify-diagnostics

// expected-error@below {{expected @f to be one block that ends in func.return}}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  "test.termop"()[^end] : () -> ()
^end:
  func.return %x : tensor<4xf32>
}
